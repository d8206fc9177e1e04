/** Time line of recordings: one position, in seconds since the start, moves all of them. */

import { batch, effect, signal } from "@preact/signals";
import { route, setParams } from "./route";
import type { Run } from "./run";

export const SPEEDS = [0.1, 1, 10, 60, 600, 3600, 36000];
/** A whole recording takes about this many seconds at the speed that is chosen first. */
const WHOLE = 60;
const SEEK_PAUSE = 60;

export class Player {
  readonly position = signal(0);
  readonly playing = signal(false);
  readonly speed = signal(1);
  readonly length: number;
  private readonly runs: Run[];
  private frame = 0;
  private before = 0;
  private timer: ReturnType<typeof setTimeout> | undefined;
  /** Moment in the address, as this player wrote it or followed it. */
  private shared = "";

  constructor(runs: Run[]) {
    this.runs = runs.filter((run) => run.recorded);
    this.length = Math.max(0, ...this.runs.map((run) => run.length));
    const fitting = SPEEDS.filter((speed) => speed <= this.length / WHOLE);
    this.speed.value = fitting[fitting.length - 1] ?? (this.length > 0 ? SPEEDS[this.length < 5 ? 0 : 1] : 1);
  }

  get present(): boolean {
    return this.runs.length > 0 && this.length > 0;
  }

  /** Moment of the first run at a position, for clocks. */
  moment(position: number): number {
    return (this.runs[0]?.info.start ?? 0) + position;
  }

  start(): void {
    this.position.value = this.wanted();
    for (const run of this.runs) void run.start(run.info.start + Math.min(this.position.value, run.length));
    // Links and the browser's history lead to other moments, too.
    effect(() => {
      const at = route.value.params.get("at") ?? "";
      if (at === this.shared || this.playing.peek()) return;
      this.shared = at;
      this.seek(this.wanted());
    });
  }

  private wanted(): number {
    this.shared = route.peek().params.get("at") ?? "";
    const moment = parseFloat(this.shared);
    return Number.isFinite(moment) ? this.inside(moment - (this.runs[0]?.info.start ?? 0)) : this.length;
  }

  seek(position: number): void {
    this.position.value = this.inside(position);
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.load(), SEEK_PAUSE);
  }

  toggle(): void {
    if (this.playing.value) this.pause();
    else this.play();
  }

  play(): void {
    if (this.position.value >= this.length) {
      this.position.value = 0;
      this.load();
    }
    this.playing.value = true;
    this.shared = "";
    setParams({ at: "" });
    this.before = performance.now();
    this.frame = requestAnimationFrame((now) => this.step(now));
  }

  pause(): void {
    cancelAnimationFrame(this.frame);
    this.playing.value = false;
    this.share();
  }

  private inside(position: number): number {
    return Math.max(0, Math.min(this.length, position));
  }

  private load(): void {
    this.share();
    for (const run of this.runs) {
      run.happenings = [];
      void run.start(run.info.start + Math.min(this.position.value, run.length));
    }
  }

  private share(): void {
    if (this.playing.peek()) return;
    this.shared = this.position.peek() >= this.length ? "" : String(Math.round(this.moment(this.position.peek()) * 1000) / 1000);
    setParams({ at: this.shared });
  }

  private step(now: number): void {
    if (!this.playing.value) return;
    const passed = Math.min(0.25, (now - this.before) / 1000);
    this.before = now;
    const to = this.inside(this.position.value + passed * this.speed.value);
    batch(() => {
      // All runs wait for the one whose changes are not there yet.
      let reached = to;
      for (const run of this.runs) {
        if (to > run.length && run.at >= (run.info.end ?? 0)) continue;
        if (run.connection.value.state === "loading") reached = this.position.value;
        else reached = Math.min(reached, Math.max(this.position.value, run.advance(run.info.start + to, this.speed.value) - run.info.start));
      }
      this.position.value = reached;
    });
    if (this.position.value >= this.length) this.pause();
    else this.frame = requestAnimationFrame((next) => this.step(next));
  }
}
