/** A node: what it has, what is asked of it, and its pods to their share. */

import type { NodePage } from "../api";
import { useDocument } from "../document";
import { amount, count, counted, percent, unitOf } from "../format";
import { Facts, Gauge, PodLink, Shown, WorkloadLink } from "../parts";
import { href } from "../route";
import type { Run } from "../run";
import { workloadColour } from "../colours";

export function NodeView({ run, name }: { run: Run; name: string }) {
  const document = useDocument<NodePage>(run, `nodes/${encodeURIComponent(name)}`);
  return (
    <>
      <div class="heading">
        <h1 tabIndex={-1} data-testid="node-name">
          {name}
        </h1>
        {document.value && <span class={`state status-${document.value.status.toLowerCase()}`}>{document.value.status}</span>}
        <a class="button" href={href(["pods"], { node: name })}>
          Its pods as a list
        </a>
        <a class="button" href={href(["map"], { node: name })} data-testid="show-node-on-map">
          Show on the map
        </a>
      </div>
      <Shown document={document} what="the node">
        {(page) => (
          <div class="columns">
            <div class="stack wide">
              <Amounts page={page} run={run} />
              <Pods page={page} run={run} />
            </div>
            <div class="stack">
              <section class="panel" aria-label="Taints and conditions">
                <h2>Taints</h2>
                {page.taints.length ? (
                  <ul class="plain">
                    {page.taints.map((taint) => (
                      <li key={taint}>
                        <code>{taint}</code>
                      </li>
                    ))}
                  </ul>
                ) : (
                  <p class="dim">none</p>
                )}
                <h2>Conditions</h2>
                {page.conditions.length ? <Facts facts={page.conditions.map((each) => [each.type, `${each.status}${each.message ? `: ${each.message}` : ""}`])} /> : <p class="dim">none</p>}
              </section>
              <section class="panel" aria-label="Labels">
                <h2>Labels</h2>
                {Object.keys(page.labels).length ? <Facts facts={Object.entries(page.labels)} /> : <p class="dim">none</p>}
              </section>
            </div>
          </div>
        )}
      </Shown>
    </>
  );
}

function unit(run: Run, name: string) {
  return run.cluster?.resource(name)?.unit ?? unitOf(name);
}

function Amounts({ page, run }: { page: NodePage; run: Run }) {
  const names = Object.keys(page.allocatable).filter((name) => page.allocatable[name] > 0 || page.requested[name] > 0);
  return (
    <section class="panel" aria-label="Amounts" data-testid="amounts">
      <h2>Requested</h2>
      <table class="list amounts">
        <thead class="unseen">
          <tr>
            <th scope="col">Resource</th>
            <th scope="col">Share</th>
            <th scope="col">Percent</th>
            <th scope="col">Amount</th>
          </tr>
        </thead>
        <tbody>
          {names.map((name) => {
            const asked = page.requested[name] ?? 0;
            const share = asked / page.allocatable[name];
            return (
              <tr key={name}>
                <th scope="row">{name}</th>
                <td class="grow">
                  <Gauge share={share} label={name} />
                </td>
                <td class="number">{Number.isFinite(share) ? percent(share) : "–"}</td>
                <td class="dim nowrap">
                  {amount(asked, unit(run, name))} of {amount(page.allocatable[name], unit(run, name))}
                </td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </section>
  );
}

const BARS = ["cpu", "memory"];

/** Pods, the largest first, each with its share of the node; above them the node as a bar of all its pods. */
function Pods({ page, run }: { page: NodePage; run: Run }) {
  const bars = Object.keys(page.allocatable).filter((name) => page.allocatable[name] > 0 && name !== "pods" && (BARS.includes(name) || page.pods.some((pod) => pod.requests[name] > 0)));
  return (
    <section class="panel" aria-label="Pods" data-testid="node-pods">
      <h2>{counted(page.pods.length + page.leftOut, "pod")}, to their share</h2>
      {!page.pods.length && <p class="dim empty">No pod is on this node.</p>}
      {page.pods.length > 0 &&
        bars.map((name) => (
          <div key={name} class="share-row">
            <span>{name}</span>
            <div class="share-bar" role="img" aria-label={`${name}, ${percent((page.requested[name] ?? 0) / page.allocatable[name])} requested by the pods below`}>
              {page.pods.map((pod) => (
                <span
                  key={`${pod.namespace}/${pod.name}`}
                  title={`${pod.namespace}/${pod.name}: ${amount(pod.requests[name] ?? 0, unit(run, name))}`}
                  style={{ width: `${((pod.requests[name] ?? 0) / page.allocatable[name]) * 100}%`, background: workloadColour(pod.workload || pod.name) }}
                />
              ))}
            </div>
          </div>
        ))}
      {page.pods.length > 0 && (
        <div class="scroll">
          <table class="list">
            <thead>
              <tr>
                <th scope="col">Pod</th>
                <th scope="col">Workload</th>
                <th scope="col">Phase</th>
                <th scope="col" class="number">
                  Priority
                </th>
                {bars.map((name) => (
                  <th key={name} scope="col" class="number">
                    {name}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {page.pods.map((pod) => (
                <tr key={`${pod.namespace}/${pod.name}`}>
                  <th scope="row">
                    <span class="swatch" style={{ background: workloadColour(pod.workload || pod.name) }} /> <PodLink pod={`${pod.namespace}/${pod.name}`} />
                  </th>
                  <td>
                    <WorkloadLink workload={pod.workload} namespace={pod.namespace} />
                  </td>
                  <td>{pod.phase}</td>
                  <td class="number">{count(pod.priority)}</td>
                  {bars.map((name) => (
                    <td key={name} class="number nowrap">
                      {pod.requests[name] ? amount(pod.requests[name], unit(run, name)) : ""}
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {page.leftOut > 0 && (
        <p class="dim">
          {counted(page.leftOut, "more pod")}. <a href={href(["pods"], { node: page.name })}>All of them</a>
        </p>
      )}
    </section>
  );
}
