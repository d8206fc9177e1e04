/** Time line of recordings: slider, play and pause, speed. */

import { fullMoment, moment } from "./format";
import { SPEEDS, type Player } from "./player";

const DAY = 86_400;

export function Transport({ player }: { player: Player }) {
  const position = player.position.value;
  const at = player.moment(position);
  const playing = player.playing.value;
  // A clock alone would leave the day open.
  const shown = player.length > DAY ? fullMoment : moment;
  const step = player.length / 1000;
  return (
    <section class="transport" aria-label="Time line" data-testid="transport">
      <button type="button" class="play" onClick={() => player.toggle()} aria-label={playing ? "Pause" : "Play"} data-testid="play">
        {playing ? "❚❚" : "▶"}
      </button>
      <output class="clock" title={fullMoment(at)} data-testid="clock">
        {shown(at)}
      </output>
      <input
        type="range"
        min={0}
        max={player.length}
        step={step}
        value={position}
        aria-label="Time"
        aria-valuetext={fullMoment(at)}
        onInput={(event) => {
          if (playing) player.pause();
          player.seek(Number(event.currentTarget.value));
        }}
        data-testid="slider"
      />
      <output class="clock end">{shown(player.moment(player.length))}</output>
      <label class="choice">
        <span class="unseen">Speed</span>
        <select value={String(player.speed.value)} onChange={(event) => (player.speed.value = Number(event.currentTarget.value))} data-testid="speed">
          {SPEEDS.map((speed) => (
            <option key={speed} value={String(speed)}>
              {speed} ×
            </option>
          ))}
        </select>
      </label>
    </section>
  );
}
