/** A run that is shown: its cluster, kept up to date by events, or moved along the time line of a recording. */

import { signal } from "@preact/signals";
import type { Change, Played, RunInfo, Sample, State } from "./api";
import { aborted, get, query, RequestError, url } from "./client";
import { Cluster, type Effect } from "./cluster";

/** State of the connection. `refused`: the session is not valid; `failed` has an error that another attempt does not mend. */
export interface Connection {
  state: "loading" | "live" | "still" | "retrying" | "refused" | "failed";
  text: string;
}

/** Something that happened, for lists: a binding, a preemption, a node that came, went or changed. */
export interface Happening {
  at: number;
  kind: "bound" | "preempted" | "node";
  pod: string;
  node: string;
  victims: string[];
  /** State of a node, in words. */
  text: string;
}

/** Listener to changes, in the order in which they are applied; `null` after everything was loaded anew. */
export type Listener = (change: Change | null, effect: Effect | null) => void;

const MOST_HAPPENINGS = 300;
const MOST_SAMPLES = 4000;
/** Milliseconds between updates of figures; the map follows at once. */
const CALM = 250;
const RETRY = [500, 1000, 2000, 3000];
const MOST_CHANGES = 400;

export class Run {
  cluster: Cluster | null = null;
  profiles: State["profiles"] = [];
  at = 0;
  readonly connection = signal<Connection>({ state: "loading", text: "" });
  readonly sample = signal<Sample | null>(null);
  /** Counts loaded states, changes of nodes, and changes of anything, the latter two not more often than every 250 ms. */
  readonly loads = signal(0);
  readonly structure = signal(0);
  readonly tick = signal(0);
  happenings: Happening[] = [];
  /** Samples that came while the page was open. */
  recent: Sample[] = [];
  private version = 0;
  private readonly listeners = new Set<Listener>();
  private source: EventSource | null = null;
  private loading: AbortController | null = null;
  private attempts = 0;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private calm: ReturnType<typeof setTimeout> | undefined;
  private restructured = false;
  private lastSample: Sample | null = null;
  private readonly ahead = new Ahead();

  constructor(readonly info: RunInfo) {}

  get recorded(): boolean {
    return this.info.mode === "recording";
  }

  /** Length of a recording in seconds. */
  get length(): number {
    return Math.max(0, (this.info.end ?? this.info.start) - this.info.start);
  }

  path(rest: string, params: Record<string, string | number | null> = {}): string {
    return `runs/${this.info.id}/${rest}${query({ ...params, at: this.recorded ? this.at : null })}`;
  }

  /** Path of what has no moment of its own. */
  timeless(rest: string): string {
    return `runs/${this.info.id}/${rest}`;
  }

  listen(listener: Listener): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** Loads the state, at a moment of a recording, and follows it from there if it goes on. */
  async start(at: number | null = null): Promise<void> {
    this.stop();
    const loading = (this.loading = new AbortController());
    if (this.recorded) this.at = at ?? this.info.end ?? this.info.start;
    try {
      const state = await get<State>(this.path("state"), loading.signal);
      this.loading = null;
      this.show(state);
      if (this.info.mode === "live" || this.info.mode === "embedded") this.follow();
      else this.connection.value = { state: "still", text: "" };
    } catch (error) {
      if (aborted(error)) return;
      this.loading = null;
      this.failed(error);
    }
  }

  stop(): void {
    clearTimeout(this.timer);
    this.loading?.abort();
    this.source?.close();
    this.source = null;
    this.ahead.clear();
  }

  private show(state: State): void {
    this.cluster = new Cluster(state.nodes);
    this.version = state.version;
    this.at = state.at;
    this.profiles = state.profiles;
    this.sample.value = this.lastSample = state.sample;
    this.attempts = 0;
    for (const listener of this.listeners) listener(null, null);
    this.loads.value++;
    this.structure.value++;
    this.tick.value++;
  }

  private failed(error: unknown): void {
    const status = error instanceof RequestError ? error.status : 0;
    const text = error instanceof Error ? error.message : String(error);
    if (status === 401 || status === 403) this.connection.value = { state: "refused", text };
    else if (status >= 400 && status < 500) {
      this.connection.value = { state: "failed", text };
      return;
    } else this.connection.value = { state: "retrying", text };
    const wait = RETRY[Math.min(this.attempts++, RETRY.length - 1)];
    this.timer = setTimeout(() => void this.start(this.recorded ? this.at : null), wait);
  }

  // -- live --------------------------------------------------------------------------------------------

  private follow(): void {
    const source = (this.source = new EventSource(url(`runs/${this.info.id}/changes?since=${this.version}`)));
    source.addEventListener("open", () => {
      this.connection.value = { state: "live", text: "" };
    });
    source.addEventListener("change", (event) => this.receive(JSON.parse((event as MessageEvent<string>).data) as Change));
    source.addEventListener("resync", () => void this.start());
    // The state is loaded anew after a pause: the program may be another one by then, with versions of its own.
    source.addEventListener("error", () => {
      source.close();
      if (this.source === source) this.failed(new RequestError(0, "the connection is lost"));
    });
  }

  private receive(change: Change): void {
    if (change.version <= this.version) return;
    if (change.version !== this.version + 1) {
      void this.start();
      return;
    }
    this.version = change.version;
    this.apply(change);
  }

  private apply(change: Change): void {
    if (!this.cluster) return;
    this.note(change, this.cluster);
    const effect = this.cluster.apply(change);
    this.at = Math.max(this.at, change.at);
    this.restructured ||= effect.nodes;
    if (change.sample) {
      this.lastSample = change.sample;
      if (!this.recorded) this.recent.push(change.sample);
      if (this.recent.length > MOST_SAMPLES) this.recent.splice(0, MOST_SAMPLES / 4);
    }
    for (const listener of this.listeners) listener(change, effect);
    this.calm ??= setTimeout(() => this.tell(), CALM);
  }

  private tell(): void {
    this.calm = undefined;
    this.sample.value = this.lastSample;
    if (this.restructured) this.structure.value++;
    this.restructured = false;
    this.tick.value++;
  }

  private note(change: Change, cluster: Cluster): void {
    this.happenings.push(...happeningsOf(change, cluster));
    if (this.happenings.length > MOST_HAPPENINGS) this.happenings.splice(0, this.happenings.length - MOST_HAPPENINGS);
  }

  // -- recordings --------------------------------------------------------------------------------------

  /** Moves on to a moment, as far as changes are there already, and fetches more. Returns the moment that it reached. */
  advance(to: number, rate: number): number {
    if (this.loading || this.connection.peek().state !== "still") return this.at;
    const reached = Math.min(to, this.ahead.until(this.at), this.info.end ?? to);
    for (const change of this.ahead.take(reached)) this.apply(change);
    this.at = Math.max(this.at, reached);
    this.calm ??= setTimeout(() => this.tell(), CALM);
    const end = this.info.end ?? Infinity;
    const from = this.ahead.until(this.at);
    if (from < end && from < this.at + rate * 2) {
      const part = Math.min(end, from + Math.max(rate * 3, 1e-3));
      void this.ahead.fetch(this.info.id, from, part, (error) => this.failed(error));
    }
    return reached;
  }

  /** Changes between two moments of a recording, for lists. */
  async between(from: number, to: number, most: number, signal: AbortSignal): Promise<Happening[]> {
    const played = await get<Played>(`runs/${this.info.id}/played${query({ from, to, most })}`, signal);
    const cluster = this.cluster;
    return cluster ? played.changes.flatMap((change) => happeningsOf(change, cluster)) : [];
  }
}

/** Changes that were fetched ahead of their time. */
class Ahead {
  private changes: Change[] = [];
  private known: number | null = null;
  private fetching: AbortController | null = null;

  clear(): void {
    this.fetching?.abort();
    this.fetching = null;
    this.changes = [];
    this.known = null;
  }

  /** Moment up to which all changes are there; `at` if none were fetched. */
  until(at: number): number {
    return this.known ?? at;
  }

  take(until: number): Change[] {
    let number = 0;
    while (number < this.changes.length && this.changes[number].at <= until) number++;
    return this.changes.splice(0, number);
  }

  async fetch(run: number, from: number, to: number, failed: (error: unknown) => void): Promise<void> {
    if (this.fetching) return;
    const fetching = (this.fetching = new AbortController());
    try {
      const played = await get<Played>(`runs/${run}/played${query({ from, to, most: MOST_CHANGES })}`, fetching.signal);
      if (this.fetching !== fetching) return;
      this.changes.push(...played.changes);
      this.known = to;
      this.fetching = null;
    } catch (error) {
      if (this.fetching === fetching) this.fetching = null;
      if (!aborted(error)) failed(error);
    }
  }
}

function happeningsOf(change: Change, cluster: Cluster): Happening[] {
  const found: Happening[] = [];
  const name = (row: number) => change.nodes.find((node) => node.row === row)?.name || cluster.names[row] || "";
  for (const node of change.nodes) found.push({ at: change.at, kind: "node", pod: "", node: node.name || name(node.row), victims: [], text: node.name ? [node.status, node.taints && `taints ${node.taints}`].filter(Boolean).join(", ") : "gone" });
  for (const each of change.preempted) found.push({ at: change.at, kind: "preempted", pod: each.pod, node: name(each.row), victims: each.victims, text: "" });
  for (const each of change.bound) found.push({ at: change.at, kind: "bound", pod: each.pod, node: name(each.row), victims: [], text: "" });
  return found;
}
