/** Small parts that views share. */

import type { ComponentChildren } from "preact";
import type { Loaded } from "./document";
import { percent } from "./format";
import { href } from "./route";

/** Link to a pod, `namespace/name`. */
export function PodLink({ pod, children }: { pod: string; children?: ComponentChildren }) {
  const cut = pod.indexOf("/");
  if (cut < 0) return <>{pod}</>;
  return (
    <a href={href(["pod", pod.slice(0, cut), pod.slice(cut + 1)])} class="name">
      {children ?? pod}
    </a>
  );
}

export function NodeLink({ node }: { node: string }) {
  return node ? (
    <a href={href(["node", node])} class="name">
      {node}
    </a>
  ) : null;
}

/** Link to the pods of a workload: `Kind/name` in a namespace. */
export function WorkloadLink({ workload, namespace }: { workload: string; namespace?: string | undefined }) {
  return workload ? (
    <a href={href(["pods"], { workload, namespace: namespace ?? "" })} class="name">
      {workload}
    </a>
  ) : (
    <span class="dim">none</span>
  );
}

/** Content of a document, or that it is loading, missing or empty. */
export function Shown<T>({ document, children, empty, what }: { document: Loaded<T>; children: (value: T) => ComponentChildren; empty?: (value: T) => string; what: string }) {
  const { value, error, loading } = document;
  const nothing = value !== null && empty ? empty(value) : "";
  return (
    <>
      {error && (
        <p class="fault" role="alert">
          {value ? `${what} could not be brought up to date: ` : ""}
          {error}
        </p>
      )}
      {value === null && loading && (
        <p class="dim" aria-busy="true">
          Loading {what}…
        </p>
      )}
      {nothing ? <p class="dim empty">{nothing}</p> : value !== null && children(value)}
    </>
  );
}

/** Share as a bar with its number. */
export function Gauge({ share, label }: { share: number; label: string }) {
  const known = Number.isFinite(share);
  return (
    <span class="gauge" role="img" aria-label={`${label} ${known ? percent(share) : "unknown"}`}>
      <span class={share > 1 ? "fill over" : "fill"} style={{ width: `${known ? Math.min(100, share * 100) : 0}%` }} />
    </span>
  );
}

const STATES: Record<string, string> = {
  Active: "next in line",
  Backoff: "waits for the end of its backoff",
  Unschedulable: "waits for an event that may help",
  Gated: "held back before scheduling",
  Permit: "waits for permission",
  Binding: "being bound",
};

/** State of a pod: its place in the queue, or its phase. */
export function PodState({ state }: { state: string }) {
  return (
    <span class={`state state-${state.toLowerCase()}`} title={STATES[state] ?? ""}>
      {state}
    </span>
  );
}

export function placeWords(place: string): string {
  return STATES[place] ?? place;
}

/** Facts with their names. */
export function Facts({ facts }: { facts: [string, ComponentChildren][] }) {
  return (
    <dl class="facts">
      {facts.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}
