/** Search for pods. */

import { useEffect, useRef, useState } from "preact/hooks";
import type { PodList } from "../api";
import { useDocument } from "../document";
import { count, counted, moment, fullMoment } from "../format";
import { NodeLink, PodLink, PodState, Shown, WorkloadLink } from "../parts";
import { route, setParams } from "../route";
import type { Run } from "../run";

const LIMIT = 100;
const PAUSE = 250;
const STATES = ["Active", "Backoff", "Unschedulable", "Gated", "Permit", "Binding", "Pending", "Running", "Succeeded", "Failed"];

export function PodsView({ run }: { run: Run }) {
  const params = route.value.params;
  const wanted = (name: string) => params.get(name) ?? "";
  const [text, setText] = useState(wanted("q"));
  const [limit, setLimit] = useState(LIMIT);
  const written = useRef(text);
  useEffect(() => {
    const timer = setTimeout(() => {
      written.current = text;
      if (text !== wanted("q")) setParams({ q: text });
    }, PAUSE);
    return () => clearTimeout(timer);
  }, [text]);
  // A link leads here with another search; what is being typed stays.
  useEffect(() => {
    if (wanted("q") !== written.current) setText(wanted("q"));
  }, [wanted("q")]);
  const asked = { q: wanted("q"), namespace: wanted("namespace"), state: wanted("state"), node: wanted("node"), workload: wanted("workload"), limit: String(limit) };
  const document = useDocument<PodList>(run, "pods", asked);
  const narrowed = ["namespace", "node", "workload"].filter((name) => wanted(name));
  return (
    <>
      <h1 tabIndex={-1}>Pods</h1>
      <form class="toolbar" role="search" onSubmit={(event) => event.preventDefault()}>
        <label class="choice">
          Name
          <input type="search" value={text} placeholder="part of the name" onInput={(event) => setText(event.currentTarget.value)} data-testid="pod-search" />
        </label>
        <label class="choice">
          State
          <select value={wanted("state")} onChange={(event) => setParams({ state: event.currentTarget.value })} data-testid="pod-state">
            <option value="">any</option>
            {STATES.map((state) => (
              <option key={state}>{state}</option>
            ))}
          </select>
        </label>
        {narrowed.map((name) => (
          <span key={name} class="chip">
            {name} {wanted(name)}{" "}
            <button type="button" class="quiet" aria-label={`Any ${name}`} onClick={() => setParams({ [name]: "" })}>
              ✕
            </button>
          </span>
        ))}
      </form>
      <Shown document={document} what="the pods" empty={(list) => (list.pods.length ? "" : "No pod matches.")}>
        {(list) => (
          <>
            <p class="dim" role="status">
              {list.total > list.pods.length ? `${count(list.pods.length)} of ${counted(list.total, "pod")}` : counted(list.total, "pod")}
            </p>
            <PodTable list={list} />
            {list.total > list.pods.length && limit < 1000 && (
              <p>
                <button type="button" onClick={() => setLimit(1000)}>
                  Show up to 1,000
                </button>
              </p>
            )}
          </>
        )}
      </Shown>
    </>
  );
}

function PodTable({ list }: { list: PodList }) {
  return (
    <div class="scroll">
      <table class="list" data-testid="pod-table">
        <thead>
          <tr>
            <th scope="col">Pod</th>
            <th scope="col">Workload</th>
            <th scope="col">State</th>
            <th scope="col">Node</th>
            <th scope="col" class="number">
              Priority
            </th>
            <th scope="col">Created</th>
          </tr>
        </thead>
        <tbody>
          {list.pods.map((pod) => (
            <tr key={`${pod.namespace}/${pod.name}`}>
              <th scope="row">
                <PodLink pod={`${pod.namespace}/${pod.name}`} />
              </th>
              <td>
                <WorkloadLink workload={pod.workload} namespace={pod.namespace} />
              </td>
              <td>
                <PodState state={pod.state} />
              </td>
              <td>
                <NodeLink node={pod.node} />
              </td>
              <td class="number">{count(pod.priority)}</td>
              <td class="nowrap">{pod.created !== null && <span title={fullMoment(pod.created)}>{moment(pod.created)}</span>}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
