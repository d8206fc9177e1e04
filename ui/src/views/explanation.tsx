/** Explanations: documents of `kubesched explain`, in the words that the terminal has for them. */

import type { Alternative, Explanation, NotCreated, ObstacleReport, Pending, PodGroupReport, PreemptionReport, QueueState, Reason, Turn } from "../api";
import { count, counted, duration, moment } from "../format";
import { NodeLink, PodLink, WorkloadLink } from "../parts";
import { Placement } from "./placement";

export function ExplanationBox({ found }: { found: Explanation }) {
  return (
    <>
      {found.podGroups.map((group) => (
        <Group key={group.group} group={group} />
      ))}
      {found.pending.map((group, at) => (
        <PendingGroup key={at} group={group} />
      ))}
      {found.notCreated.map((one) => (
        <Missing key={one.workload} one={one} />
      ))}
      {found.placed.map((one) => (
        <Placement key={one.pod} one={one} />
      ))}
      {found.evicted.map((one, at) => (
        <Evicted key={at} one={one} />
      ))}
      {found.absent.length > 0 && <p>No pod has the name {found.absent.join(", ")}.</p>}
      {found.notes.map((note) => (
        <p key={note}>{note}</p>
      ))}
    </>
  );
}

function Names({ names, total }: { names: string[]; total: number }) {
  if (!names.length) return null;
  return (
    <span class="names">
      {names.map((name, at) => (
        <span key={name}>
          {at ? ", " : ""}
          <NodeLink node={name} />
        </span>
      ))}
      {total > names.length && ` and ${count(total - names.length)} more`}
    </span>
  );
}

/** What stands in the way, with the number of nodes as a bar. */
export function Obstacles({ list, of }: { list: (ObstacleReport | Reason)[]; of: number }) {
  if (!list.length) return null;
  const most = Math.max(of, ...list.map((each) => each.nodes), 1);
  return (
    <ul class="obstacles">
      {list.map((each, at) => (
        <li key={at}>
          <span class="bar" aria-hidden="true">
            <span style={{ width: `${(each.nodes / most) * 100}%` }} />
          </span>
          <b class="nowrap">{counted(each.nodes, "node")}</b>
          <div>
            {each.text} {each.plugin && <span class="plugin">{each.plugin}</span>}
            {each.examples.length > 0 && (
              <div class="dim small">
                <Names names={each.examples} total={each.nodes} />
              </div>
            )}
          </div>
        </li>
      ))}
    </ul>
  );
}

export function Hints({ hints }: { hints: string[] }) {
  if (!hints.length) return null;
  return (
    <>
      <h3>What would help</h3>
      <ul class="hints">
        {hints.map((hint) => (
          <li key={hint}>{hint}</li>
        ))}
      </ul>
    </>
  );
}

function PendingGroup({ group }: { group: Pending }) {
  const obstacles = group.obstacles.length ? group.obstacles : group.reasons;
  return (
    <article class="explained" data-testid="pending">
      <p class="verdict">
        <b>{group.reason}</b>
        {group.count > 1 && (
          <span>
            {" "}
            {counted(group.count, "pod")} of <WorkloadLink workload={group.workload} namespace={group.pods[0]?.split("/")[0]} /> for the same reasons
          </span>
        )}
      </p>
      <p class="why">{group.message}</p>
      {group.queue && <Queue state={group.queue} />}
      {obstacles.length > 0 && <h3>What stands in the way</h3>}
      <Obstacles list={obstacles} of={0} />
      {group.gates.length > 0 && <p>Scheduling gates: {group.gates.join(", ")}</p>}
      {group.waitsFor.map((text) => (
        <p key={text}>{text}</p>
      ))}
      <Hints hints={group.hints} />
      {group.evictions && (
        <details>
          <summary>
            It would fit on {group.evictions.node} without {counted(group.evictions.pods.length, "pod")} of {count(group.evictions.of)}
          </summary>
          <ul>
            {group.evictions.pods.map((pod) => (
              <li key={pod}>
                <PodLink pod={pod} />
              </li>
            ))}
            {group.evictions.frees.map((text) => (
              <li key={text}>{text}</li>
            ))}
          </ul>
        </details>
      )}
      {group.newNodes.length > 0 && (
        <details>
          <summary>Kinds of nodes of which one more would help: {count(group.newNodes.length)}</summary>
          <ul>
            {group.newNodes.map((each) => (
              <li key={each.like}>
                like <NodeLink node={each.like} /> ({counted(each.nodes, "node")} of this kind)
              </li>
            ))}
          </ul>
        </details>
      )}
      {group.remarks.map((text) => (
        <p key={text} class="remark">
          {text}
        </p>
      ))}
      {group.alternatives.map((other) => (
        <Other key={other.node} other={other} own="" />
      ))}
    </article>
  );
}

const PLACES: Record<QueueState["place"], string> = {
  Active: "is next in line",
  Backoff: "waits for the end of its backoff",
  Unschedulable: "waits for an event that may help",
  Gated: "is held back before scheduling",
  InFlight: "is being scheduled now",
  WaitingOnPermit: "has a node, and waits for permission",
  Binding: "has a node, and is being bound",
};

function Queue({ state }: { state: QueueState }) {
  const parts = [PLACES[state.place]];
  if (state.attempts) parts.push(`tried ${counted(state.attempts, "time")}`);
  if (state.waited !== null) parts.push(`queued for ${duration(state.waited)}`);
  if (state.ahead !== null) parts.push(`${counted(state.ahead, "pod")} before it`);
  if (state.backoff !== null) parts.push(`backoff ends in ${duration(state.backoff)}`);
  if (state.rejectedBy.length) parts.push(`rejected by ${state.rejectedBy.join(", ")}`);
  if (state.heldBy.length) parts.push(`held by ${state.heldBy.join(", ")}`);
  if (state.retry !== null) parts.push(`tried again in ${duration(state.retry)} at the latest`);
  return (
    <>
      <p>
        In the queue it {parts.join("; ")}
        {state.nominatedNode && (
          <>
            ; nominated to <NodeLink node={state.nominatedNode} />
          </>
        )}
        .
      </p>
      {state.wakes.length > 0 && (
        <details>
          <summary>Events before which it is tried again: {count(state.wakes.length)}</summary>
          <ul>
            {state.wakes.map((wake, at) => (
              <li key={at}>
                when {wake.text}, if that helps against <span class="plugin">{wake.plugin}</span>
              </li>
            ))}
          </ul>
        </details>
      )}
    </>
  );
}

function Group({ group }: { group: PodGroupReport }) {
  return (
    <article class="explained">
      <p class="verdict">
        Pod group <b>{group.group}</b>: <b>{group.state}</b>
      </p>
      <p class="why">{group.summary}</p>
      <p>
        {counted(group.members, "member")}: {count(group.scheduled)} with a node, {count(group.queued)} to be tried, {count(group.gated)} held
        {group.minCount ? `; at least ${count(group.minCount)} together` : ""}
        {group.topology ? `; one ${group.topology} for all` : ""}
      </p>
      {group.placements.length > 0 && (
        <ul>
          {group.placements.map((each) => (
            <li key={each.name}>
              {each.name || "all nodes"}: {counted(each.nodes, "node")}, {count(each.fit)} fit{each.lacking ? `, ${count(each.lacking)} more needed` : ""}
            </li>
          ))}
        </ul>
      )}
      {group.next && (
        <p>
          The next member, <PodLink pod={group.next} />, finds no node:
        </p>
      )}
      <Obstacles list={group.obstacles} of={0} />
      <Hints hints={group.hints} />
      {group.remarks.map((text) => (
        <p key={text} class="remark">
          {text}
        </p>
      ))}
    </article>
  );
}

function Missing({ one }: { one: NotCreated }) {
  return (
    <article class="explained">
      <p class="verdict">
        <b>{one.workload}</b> in {one.namespace}: {count(one.existing)} of {counted(one.wanted, "pod")}
      </p>
      <ul>
        {one.limits.map((limit) => (
          <li key={`${limit.quota} ${limit.resource}`}>
            quota {limit.quota}: {limit.resource} {limit.used} of {limit.limit} used, a pod asks for {limit.asked}
          </li>
        ))}
      </ul>
      {one.event && <p class="dim">{one.event}</p>}
      <Hints hints={one.hints} />
    </article>
  );
}

/** Another node than the pod's own: why it was not chosen, and after which changes it would be. `weights` are the present ones by plugin. */
export function Other({ other, own, weights = {} }: { other: Alternative; own: string; weights?: Record<string, number> }) {
  if (!other.fits)
    return (
      <article class="other" data-testid="alternative">
        <p>
          <NodeLink node={other.node} /> does not fit:
        </p>
        <ul>
          {other.obstacles.map((each, at) => (
            <li key={at}>
              {each.text} <span class="plugin">{each.plugin}</span>
            </li>
          ))}
        </ul>
        <Hints hints={other.remedies.map((each) => `it would fit: ${each.changes.join(" AND ")}`)} />
      </article>
    );
  const lost = other.lostBy;
  const points = Object.entries(other.differences).map(([plugin, value]) => `${plugin} gives ${value > 0 ? own : other.node} ${count(Math.abs(value))} more`);
  return (
    <article class="other" data-testid="alternative">
      <p>
        <NodeLink node={other.node} />{" "}
        {lost === null
          ? `fits, with a total of ${other.total}`
          : lost > 0
            ? `has ${counted(lost, "point")} less than ${own}`
            : lost < 0
              ? `has ${counted(-lost, "point")} more than ${own} now`
              : `has as many points as ${own}`}
        {points.length > 0 && `: ${points.join("; ")}`}
      </p>
      {other.turns.length > 0 && (
        <>
          <p class="dim">{other.turns.length > 1 ? "Each of these changes alone is enough for it to be chosen:" : "This change is enough for it to be chosen:"}</p>
          <ul class="hints" data-testid="turns">
            {other.turns.map((turn) => (
              <li key={turn.text}>
                <TurnWords turn={turn} node={other.node} now={weights[turn.plugin]} />
              </li>
            ))}
          </ul>
        </>
      )}
    </article>
  );
}

/** Change after which another node is chosen. `now` is the plugin's present weight. */
function TurnWords({ turn, node, now }: { turn: Turn; node: string; now: number | undefined }) {
  if (turn.kind === "evictions")
    return (
      <>
        {turn.pods.length > 1 ? "these pods leave" : "this pod leaves"} {node}:{" "}
        {turn.pods.map((pod, at) => (
          <span key={pod}>
            {at ? ", " : ""}
            <PodLink pod={pod} />
          </span>
        ))}
      </>
    );
  if (!turn.weight) return <>the scores of the plugin {turn.plugin} are switched off in the scheduler's configuration</>;
  return (
    <>
      the plugin {turn.plugin} has the weight {count(turn.weight)}
      {now !== undefined && ` instead of ${count(now)}`} in the scheduler's configuration
    </>
  );
}

function Evicted({ one }: { one: PreemptionReport }) {
  return (
    <article class="explained">
      <p class="verdict">
        Evicted for <PodLink pod={one.pod} /> (priority {count(one.priority)}) on <NodeLink node={one.node} /> at {moment(one.at)}
        {one.budgetViolations > 0 && `, with ${counted(one.budgetViolations, "budget violation")}`}
      </p>
      <p>
        Victims:{" "}
        {one.victims.map((pod, at) => (
          <span key={pod}>
            {at ? ", " : ""}
            <PodLink pod={pod} />
          </span>
        ))}
      </p>
      {one.budgets.length > 0 && <p>Budgets violated: {one.budgets.join(", ")}</p>}
      <ul>
        {one.lost.map((each) => (
          <li key={each.node}>
            not <NodeLink node={each.node} />: {each.why}
          </li>
        ))}
        {Object.entries(one.notHelpful).map(([reason, nodes]) => (
          <li key={reason} class="dim">
            {counted(nodes, "node")} not helped: {reason}
          </li>
        ))}
      </ul>
    </article>
  );
}
