/** Pages of nodes whose pods are drawn on the map: fetched a few at a time, and again when their pods change. */

import type { NodePage } from "./api";
import { aborted, get } from "./client";
import type { Run } from "./run";

const AT_ONCE = 4;
const MOST_KEPT = 300;
const PAUSE = 1000;

export class Pages {
  readonly known = new Map<string, NodePage>();
  private readonly stale = new Set<string>();
  private readonly asked = new Set<string>();
  private wanted: string[] = [];
  private timer: ReturnType<typeof setTimeout> | undefined;
  private controller = new AbortController();

  constructor(
    private readonly run: Run,
    private readonly changed: () => void,
  ) {}

  /** Nodes that are on screen. */
  want(names: string[]): void {
    this.wanted = names;
    this.fill();
  }

  /** Nodes whose pods are others now; all if null. */
  spoil(names: string[] | null): void {
    for (const name of names ?? this.known.keys()) this.stale.add(name);
    this.timer ??= setTimeout(() => {
      this.timer = undefined;
      this.fill();
    }, PAUSE);
  }

  close(): void {
    clearTimeout(this.timer);
    this.controller.abort();
  }

  private fill(): void {
    for (const name of this.wanted) {
      if (this.asked.size >= AT_ONCE) return;
      if (this.asked.has(name) || (this.known.has(name) && !this.stale.has(name))) continue;
      void this.fetch(name);
    }
  }

  private async fetch(name: string): Promise<void> {
    this.asked.add(name);
    this.stale.delete(name);
    try {
      const page = await get<NodePage>(this.run.path(`nodes/${encodeURIComponent(name)}`), this.controller.signal);
      this.known.delete(name);
      this.known.set(name, page);
      for (const oldest of this.known.keys()) if (this.known.size > MOST_KEPT) this.known.delete(oldest);
      this.changed();
    } catch (error) {
      // The node stays as it is, without its pods; it is asked for again when it changes.
      if (aborted(error)) return;
      this.wanted = this.wanted.filter((each) => each !== name);
    } finally {
      this.asked.delete(name);
    }
    this.fill();
  }
}
