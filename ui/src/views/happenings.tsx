/** What changed: bindings, preemptions and nodes, around the moment that is shown. */

import { useEffect, useRef, useState } from "preact/hooks";
import { aborted } from "../client";
import { counted, duration, fullMoment, moment } from "../format";
import { NodeLink, PodLink } from "../parts";
import type { Happening, Run } from "../run";
import { past, player } from "../store";

const SHORT = 8;
const LONG = 100;
const MOST_ASKED = 300;
const PAUSE = 300;
const CALM = 1000;
/** Part of a recording whose changes are listed. */
const WINDOW = 1 / 50;
const WINDOWS = [1, 10, 60, 600, 3600, 86400];
/** The same of a live cluster, and the longest time to look back there. */
const LIVE_WINDOW = 60;
const MEMORY = 86400;

export function Happenings({ run, short = false }: { run: Run; short?: boolean }) {
  const [window, setWindow] = useState(windowOf(run));
  // The moment before which, or around which, changes are listed; null for a live cluster's present.
  const until = run.recorded ? run.at : short ? null : past.value;
  const before = useBefore(run, short, window, until);
  const live = useLive(run);
  const list = until === null ? live : before;
  const shown = list.slice(-(short ? SHORT : LONG)).reverse();
  const title = run.recorded ? `Until ${moment(run.at)}` : "Just now";
  return (
    <section class="happenings" data-testid="happenings">
      <h2>{short ? title : `What changed ${until === null ? "since the page is open" : `in the ${duration(window)} ${run.recorded ? "before" : "around"} ${moment(until)}`}`}</h2>
      {!short && !run.recorded && (
        <label class="choice">
          Around
          <input type="time" step="1" value={until === null ? "" : moment(until)} onChange={(event) => (past.value = today(event.currentTarget.value))} data-testid="around" />
        </label>
      )}{" "}
      {!short && until !== null && (
        <label class="choice">
          {run.recorded ? "Look back" : "Within"}
          <select value={String(window)} onChange={(event) => setWindow(Number(event.currentTarget.value))} data-testid="look-back">
            {[...new Set([...WINDOWS.filter((each) => each < (run.recorded ? run.length : MEMORY)), windowOf(run)])].sort((a, b) => a - b).map((each) => (
              <option key={each} value={String(each)}>
                {duration(each)}
              </option>
            ))}
          </select>
        </label>
      )}
      {shown.length ? (
        <ol class="events">
          {shown.map((each, at) => (
            <li key={at} class={each.kind}>
              <time title={fullMoment(each.at)}>{moment(each.at)}</time> <Words happening={each} />
            </li>
          ))}
        </ol>
      ) : (
        <p class="dim empty">{until === null ? "Nothing has changed since the page is open." : run.recorded ? `Nothing changed in the ${duration(window)} before.` : `Nothing changed in the ${duration(window)} around it, as far as is remembered.`}</p>
      )}
      {!short && list.length > LONG && <p class="dim">The last {LONG} are shown.</p>}
      {!short && !run.recorded && (
        <p class="dim">
          A click into a chart, or a time under <i>Around</i>, lists what was bound and evicted then: of the last 20,000 attempts. All of it is in a file of decisions, if one is written (
          <code>--decisions FILE</code>): <code>kubesched view FILE</code> shows any moment of it.
        </p>
      )}
    </section>
  );
}

function Words({ happening }: { happening: Happening }) {
  const { kind, pod, node, victims } = happening;
  if (kind === "bound")
    return (
      <span>
        <PodLink pod={pod} /> → <NodeLink node={node} />
      </span>
    );
  if (kind === "preempted")
    return (
      <span>
        <PodLink pod={pod} /> evicted {victims.length > 3 ? counted(victims.length, "pod") : victims.map((each, at) => <>{at ? ", " : ""}<PodLink pod={each} /></>)} on <NodeLink node={node} />
      </span>
    );
  return (
    <span>
      node <NodeLink node={node} />: {happening.text || "changed"}
    </span>
  );
}

/** Changes since the page is open, calm enough to be read. */
function useLive(run: Run): Happening[] {
  const [list, setList] = useState<Happening[]>(run.happenings);
  const waiting = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  const tick = run.tick.value;
  useEffect(() => {
    waiting.current ??= setTimeout(() => {
      waiting.current = undefined;
      setList([...run.happenings]);
    }, CALM);
  }, [run, tick]);
  useEffect(() => () => clearTimeout(waiting.current), []);
  return list;
}

function windowOf(run: Run): number {
  return run.recorded ? Math.max(1, Math.round(run.length * WINDOW)) : LIVE_WINDOW;
}

/** Last moment at which clocks here showed a time; null for none. */
function today(time: string): number | null {
  const [hours, minutes, seconds = 0] = time.split(":").map(Number);
  if (!time || [hours, minutes, seconds].some(Number.isNaN)) return null;
  const day = new Date();
  day.setHours(hours, minutes, seconds, 0);
  if (day.getTime() > Date.now()) day.setDate(day.getDate() - 1);
  return day.getTime() / 1000 + 0.5; // the middle of the second
}

/** Changes shortly before a moment: of a recording, or of what a live cluster remembers. */
function useBefore(run: Run, short: boolean, window: number, until: number | null): Happening[] {
  const [list, setList] = useState<Happening[]>([]);
  const tick = run.recorded ? run.tick.value : 0;
  const playing = player.value?.playing.value ?? false;
  useEffect(() => {
    if (until === null || !run.cluster) return undefined;
    if (playing && short) {
      setList([...run.happenings]);
      return undefined;
    }
    const controller = new AbortController();
    const timer = setTimeout(() => {
      const after = run.recorded ? 0 : window / 2; // a person who gives a time of the clock means it, before and after
      run.between(until + after - window, until + after, MOST_ASKED, controller.signal).then(setList, (error: unknown) => {
        if (!aborted(error)) setList([]);
      });
    }, PAUSE);
    return () => {
      clearTimeout(timer);
      controller.abort();
    };
  }, [run, tick, playing, window, until]);
  return list;
}
