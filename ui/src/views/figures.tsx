/** Strip of figures below the head: the cluster in numbers. */

import { amount, count, percent, unitOf } from "../format";
import { Gauge } from "../parts";
import { href } from "../route";
import type { Run } from "../run";
import { runs } from "../store";

const PLACES: [keyof NonNullable<Run["sample"]["value"]>["queue"], string, string][] = [
  ["active", "active", "next in line"],
  ["backoff", "backoff", "wait for the end of their backoff"],
  ["unschedulable", "unschedulable", "wait for an event that may help"],
  ["gated", "gated", "held back before scheduling"],
  ["permit", "on permit", "wait for permission"],
  ["binding", "binding", "being bound"],
];
const MOST_RESOURCES = 4;

export function Figures({ run }: { run: Run }) {
  const sample = run.sample.value;
  void run.structure.value;
  if (!sample || !run.cluster) return <section class="figures" aria-label="Figures" aria-busy="true" />;
  const several = runs.value.length > 1;
  const resources = Object.entries(sample.utilisation).slice(0, MOST_RESOURCES);
  return (
    <section class="figures" aria-label={several ? `Figures of ${run.info.name}` : "Figures"} data-testid={`figures-${run.info.id}`}>
      {several && <strong class="figure-run">{run.info.name}</strong>}
      <a class="figure" href={href(["map"])}>
        <b data-testid={`nodes-${run.info.id}`}>{count(run.cluster.size)}</b> nodes
      </a>
      <a class="figure" href={href(["pods"])}>
        <b data-testid={`on-nodes-${run.info.id}`}>{count(sample.onNodes)}</b> pods on nodes
      </a>
      <a class="figure places" href={href(["queues"])}>
        <span class="unseen">Pods without a node:</span>
        {PLACES.filter(([key]) => key === "active" || key === "unschedulable" || sample.queue[key] > 0).map(([key, label, title]) => (
          <span key={key} title={title} class={sample.queue[key] ? `place place-${key}` : "place none"}>
            <b>{count(sample.queue[key])}</b> {label}
          </span>
        ))}
      </a>
      {resources.map(([name, share]) => (
        <span key={name} class="figure" title={total(run, name)}>
          {name} <Gauge share={share} label={`${name} requested`} /> <b>{percent(share)}</b>
        </span>
      ))}
      {sample.cost !== null && (
        <span class="figure" title="cost per hour">
          cost <b>{count(sample.cost)}</b>
        </span>
      )}
    </section>
  );
}

function total(run: Run, name: string): string {
  const column = run.cluster?.resource(name);
  if (!column) return "";
  const sum = (amounts: Float64Array) => amounts.reduce((all, each) => all + each, 0);
  const unit = column.unit ?? unitOf(name);
  return `${amount(sum(column.requested), unit)} of ${amount(sum(column.allocatable), unit)} requested`;
}
