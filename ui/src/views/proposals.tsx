/** Form for one change of a question. */

import { useState } from "preact/hooks";
import type { Choices, WhatIf } from "../api";
import { count, counted } from "../format";
import type { Run } from "../run";

export type Proposal = WhatIf["changes"][number];
type Kind = Proposal["kind"];

const KINDS: Record<Kind, string> = { weight: "Change the weight of a plugin", drain: "Drain nodes", fail: "Let nodes fail", "add-nodes": "Add nodes", scale: "Scale a workload" };

export function proposalWords(proposal: Proposal): string {
  switch (proposal.kind) {
    case "weight":
      return `weight of ${proposal.plugin} in ${proposal.profile}: ${proposal.weight}`;
    case "drain":
      return `drain ${proposal.node ? `node ${proposal.node}` : `the nodes with ${proposal.selector}`}`;
    case "fail":
      return proposal.node ? `node ${proposal.node} fails` : `the nodes with ${proposal.selector} fail`;
    case "add-nodes":
      return `add ${counted(proposal.count, "node")} like ${proposal.like}`;
    case "scale":
      return `scale ${proposal.workload} to ${counted(proposal.replicas, "replica")}`;
  }
}

interface Properties {
  run: Run;
  choices: Choices;
  add: (proposal: Proposal) => void;
}

export function ProposalForm({ run, choices, add }: Properties) {
  const kinds = (Object.keys(KINDS) as Kind[]).filter((kind) => choices.kinds.includes(kind));
  const [chosen, setKind] = useState<Kind>();
  const kind = chosen ?? kinds[0];
  return (
    <div class="toolbar">
      <label class="choice">
        What
        <select value={kind} onChange={(event) => setKind(event.currentTarget.value as Kind)} data-testid="kind">
          {kinds.map((each) => (
            <option key={each} value={each}>
              {KINDS[each]}
            </option>
          ))}
        </select>
      </label>
      {kind === "weight" && <WeightForm choices={choices} add={add} />}
      {(kind === "drain" || kind === "fail") && <NodesForm key={kind} run={run} kind={kind} add={add} />}
      {kind === "add-nodes" && <AddForm run={run} add={add} />}
      {kind === "scale" && <ScaleForm choices={choices} add={add} />}
    </div>
  );
}

function AddButton({ disabled, act }: { disabled: boolean; act: () => void }) {
  return (
    <button type="button" class="primary" disabled={disabled} onClick={act} data-testid="add-proposal">
      Add
    </button>
  );
}

function NumberInput({ label, value, change, least = 0 }: { label: string; value: number; change: (value: number) => void; least?: number }) {
  return (
    <label class="choice">
      {label}
      <input type="number" min={least} step={1} value={value} onInput={(event) => change(event.currentTarget.valueAsNumber)} data-testid="number" />
    </label>
  );
}

function WeightForm({ choices, add }: { choices: Choices; add: (proposal: Proposal) => void }) {
  const [profileName, setProfile] = useState("");
  const [pluginName, setPlugin] = useState("");
  const [weight, setWeight] = useState(NaN);
  const profile = choices.profiles.find((each) => each.name === profileName) ?? choices.profiles[0];
  const plugin = profile?.scores.find((each) => each.plugin === pluginName) ?? profile?.scores[0];
  if (!profile || !plugin) return <p class="dim">No profile has score plugins.</p>;
  const value = Number.isNaN(weight) ? plugin.weight : weight;
  return (
    <>
      <label class="choice">
        Profile
        <select value={profile.name} onChange={(event) => setProfile(event.currentTarget.value)}>
          {choices.profiles.map((each) => (
            <option key={each.name}>{each.name}</option>
          ))}
        </select>
      </label>
      <label class="choice">
        Plugin
        <select
          value={plugin.plugin}
          onChange={(event) => {
            setPlugin(event.currentTarget.value);
            setWeight(NaN);
          }}
          data-testid="plugin"
        >
          {profile.scores.map((each) => (
            <option key={each.plugin} value={each.plugin}>
              {each.plugin} (now {each.weight})
            </option>
          ))}
        </select>
      </label>
      <NumberInput label="Weight" value={value} change={setWeight} />
      <AddButton disabled={!(value >= 0)} act={() => add({ kind: "weight", profile: profile.name, plugin: plugin.plugin, weight: value })} />
    </>
  );
}

const MOST_PROPOSED = 12;

function NodeInput({ run, label, value, change }: { run: Run; label: string; value: string; change: (value: string) => void }) {
  const names = run.cluster?.names ?? [];
  const proposed: string[] = [];
  for (const name of names) if (name && name.includes(value) && proposed.length < MOST_PROPOSED) proposed.push(name);
  return (
    <label class="choice">
      {label}
      <input type="search" list="proposed-nodes" value={value} placeholder="name of a node" onInput={(event) => change(event.currentTarget.value)} data-testid="node-input" />
      <datalist id="proposed-nodes">
        {proposed.map((name) => (
          <option key={name} value={name} />
        ))}
      </datalist>
    </label>
  );
}

/** One node by name, or nodes by a label: chosen from those that there are, or written as a selector. */
function NodesForm({ run, kind, add }: { run: Run; kind: "drain" | "fail"; add: (proposal: Proposal) => void }) {
  const labels = run.cluster ? [...run.cluster.labels.entries()] : [];
  const [by, setBy] = useState<"label" | "node" | "selector">(kind === "fail" && labels.length ? "label" : "node");
  const [key, setKey] = useState("");
  const [value, setValue] = useState("");
  const [node, setNode] = useState("");
  const [selector, setSelector] = useState("");
  const [name, texts] = labels.find(([each]) => each === key) ?? labels.find(([each]) => /zone/.test(each)) ?? labels[0] ?? ["", undefined];
  const values = texts ? [...texts.values].sort() : [];
  const picked = values.includes(value) ? value : values[0];
  const found = by === "node" ? { node, selector: "" } : { node: "", selector: by === "label" ? (picked === undefined ? "" : `${name}=${picked}`) : selector };
  return (
    <>
      <label class="choice">
        Which
        <select value={by} onChange={(event) => setBy(event.currentTarget.value as typeof by)} data-testid="by">
          <option value="node">one node</option>
          {labels.length > 0 && <option value="label">all with a label</option>}
          <option value="selector">a label selector</option>
        </select>
      </label>
      {by === "node" && <NodeInput run={run} label="Node" value={node} change={setNode} />}
      {by === "label" && (
        <>
          <label class="choice">
            Label
            <select value={name} onChange={(event) => setKey(event.currentTarget.value)} data-testid="label">
              {labels.map(([each]) => (
                <option key={each}>{each}</option>
              ))}
            </select>
          </label>
          <label class="choice">
            Value
            <select value={picked} onChange={(event) => setValue(event.currentTarget.value)} data-testid="value">
              {values.map((each) => (
                <option key={each}>{each}</option>
              ))}
            </select>
          </label>
        </>
      )}
      {by === "selector" && (
        <label class="choice">
          Selector
          <input type="text" value={selector} placeholder="zone in (a,b),!spot" onInput={(event) => setSelector(event.currentTarget.value)} data-testid="selector" />
        </label>
      )}
      <AddButton disabled={!found.node && !found.selector} act={() => add({ kind, ...found })} />
    </>
  );
}

function AddForm({ run, add }: { run: Run; add: (proposal: Proposal) => void }) {
  const [like, setLike] = useState("");
  const [number, setNumber] = useState(1);
  return (
    <>
      <NumberInput label="How many" value={number} change={setNumber} least={1} />
      <NodeInput run={run} label="like" value={like} change={setLike} />
      <AddButton disabled={!(run.cluster && run.cluster.row(like) >= 0) || !(number >= 1)} act={() => add({ kind: "add-nodes", like, count: number })} />
    </>
  );
}

function ScaleForm({ choices, add }: { choices: Choices; add: (proposal: Proposal) => void }) {
  const [name, setName] = useState("");
  const [number, setNumber] = useState(NaN);
  const workload = choices.workloads.find((each) => each.workload === name) ?? choices.workloads[0];
  if (!workload) return <p class="dim">No workload can be scaled.</p>;
  const value = Number.isNaN(number) ? workload.replicas : number;
  return (
    <>
      <label class="choice">
        Workload
        <select
          value={workload.workload}
          onChange={(event) => {
            setName(event.currentTarget.value);
            setNumber(NaN);
          }}
          data-testid="workload"
        >
          {choices.workloads.map((each) => (
            <option key={each.workload} value={each.workload}>
              {each.workload} ({count(each.replicas)})
            </option>
          ))}
        </select>
      </label>
      <NumberInput label="Replicas" value={value} change={setNumber} />
      <AddButton disabled={!(value >= 0)} act={() => add({ kind: "scale", workload: workload.workload, replicas: value })} />
    </>
  );
}
