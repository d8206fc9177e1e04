/** A pod: facts, life, and the explanation of where it is or why it is nowhere. */

import { useState } from "preact/hooks";
import type { Explanation, Moment, PodPage } from "../api";
import { useDocument } from "../document";
import { amount, count, duration, fullMoment, moment, unitOf } from "../format";
import { Facts, NodeLink, PodState, Shown, WorkloadLink } from "../parts";
import { href } from "../route";
import type { Run } from "../run";
import { ExplanationBox } from "./explanation";

const EXPLANATION_PAUSE = 5000;

export function PodView({ run, namespace, name }: { run: Run; namespace: string; name: string }) {
  const place = `${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;
  const document = useDocument<PodPage>(run, `pods/${place}`);
  const [compared, setCompared] = useState("");
  const explanation = useDocument<Explanation>(run, `explain/pods/${place}`, compared ? { node: compared } : {}, EXPLANATION_PAUSE);
  return (
    <>
      <div class="heading">
        <h1 tabIndex={-1} data-testid="pod-name">
          <span class="dim">{namespace}/</span>
          {name}
        </h1>
        {document.value && <PodState state={document.value.pod.state} />}
        <a class="button" href={href(["map"], { pod: `${namespace}/${name}`, colour: "verdict" })} data-testid="show-on-map">
          Show on the map
        </a>
      </div>
      <div class="columns">
        <section class="panel wide" aria-label="Explanation" data-testid="explanation">
          <h2>{heading(explanation.value)}</h2>
          <Shown document={explanation} what="the explanation" empty={emptiness}>
            {(found) => <ExplanationBox found={found} />}
          </Shown>
          {explanation.value && <Compare run={run} compared={compared} choose={setCompared} />}
        </section>
        <Shown document={document} what="the pod">
          {(page) => (
            <div class="stack">
              <section class="panel" aria-label="Facts">
                <h2>Pod</h2>
                <PodFacts page={page} />
              </section>
              <section class="panel" aria-label="Life" data-testid="life">
                <h2>Life</h2>
                {!page.complete && <p class="dim">Events from before the program started may be missing.</p>}
                <Life life={page.life} now={run.recorded ? run.at : Infinity} />
              </section>
            </div>
          )}
        </Shown>
      </div>
    </>
  );
}

function heading(found: Explanation | null): string {
  const parts: string[] = [];
  if (found?.podGroups.length) parts.push("Why its pod group waits");
  if (found?.pending.length) parts.push("Why it has no node");
  if (found?.placed.length) parts.push("Why it is on this node");
  if (found?.evicted.length) parts.push("Why it was evicted");
  return parts.join(", ") || "Explanation";
}

function emptiness(found: Explanation): string {
  const parts = [found.pending, found.placed, found.evicted, found.podGroups, found.notCreated, found.notes];
  if (parts.some((part) => part.length)) return "";
  return found.absent.length ? "There is no such pod at this time." : "There is nothing to explain.";
}

function Compare({ run, compared, choose }: { run: Run; compared: string; choose: (node: string) => void }) {
  const [text, setText] = useState(compared);
  const names = run.cluster?.names ?? [];
  const proposed = text ? names.filter((name) => name.includes(text)).slice(0, 12) : [];
  return (
    <form
      class="toolbar"
      onSubmit={(event) => {
        event.preventDefault();
        choose(text.trim());
      }}
    >
      <label class="choice">
        Why not on node
        <input type="search" value={text} list="other-nodes" placeholder="name of a node" onInput={(event) => setText(event.currentTarget.value)} data-testid="compare" />
      </label>
      <datalist id="other-nodes">
        {proposed.map((name) => (
          <option key={name} value={name} />
        ))}
      </datalist>
      <button type="submit">Compare</button>
    </form>
  );
}

function PodFacts({ page }: { page: PodPage }) {
  const { pod } = page;
  const facts: [string, preact.ComponentChildren][] = [["state", <PodState state={pod.state} />]];
  if (pod.node) facts.push(["node", <NodeLink node={pod.node} />]);
  facts.push(["workload", <WorkloadLink workload={pod.workload} namespace={pod.namespace} />]);
  facts.push(["priority", count(pod.priority)]);
  for (const [name, asked] of Object.entries(page.requests)) facts.push([name, amount(asked, unitOf(name))]);
  if (page.schedulerName) facts.push(["scheduler", page.schedulerName]);
  if (pod.created !== null) facts.push(["created", <span title={fullMoment(pod.created)}>{moment(pod.created)}</span>]);
  for (const link of page.links) {
    if (link.name === pod.node || `${link.kind}/${link.name}` === pod.workload) continue;
    const words = link.kind === "Node" ? <NodeLink node={link.name} /> : <span>{link.namespace && link.namespace !== pod.namespace ? `${link.namespace}/${link.name}` : link.name}</span>;
    facts.push([link.kind, <>{words} {link.state && <span class="dim">{link.state}</span>}</>]);
  }
  return (
    <>
      <Facts facts={facts} />
      {page.message && <p class="why">{page.message}</p>}
    </>
  );
}

/** Events; those after the present moment of a recording are dim. */
function Life({ life, now }: { life: Moment[]; now: number }) {
  if (!life.length) return <p class="dim empty">Nothing is known of it.</p>;
  return (
    <ol class="life">
      {life.map((each, at) => (
        <li key={at} class={`life-${each.what} ${each.at > now ? "later" : ""}`}>
          <time title={fullMoment(each.at)}>{moment(each.at)}</time>
          <span class="since dim">{at > 0 ? `+${duration(each.at - life[at - 1].at)}` : ""}</span>
          <div>
            <b>{each.what}</b> {each.node && <NodeLink node={each.node} />}
            {each.text && <div class="why">{each.text}</div>}
          </div>
        </li>
      ))}
    </ol>
  );
}
