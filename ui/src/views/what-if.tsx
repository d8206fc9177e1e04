/** What if: changes are put together, tried, and, where that is possible, carried out. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Applied, Choices, Outcome, WhatIf } from "../api";
import { post } from "../client";
import { Cluster } from "../cluster";
import { painter as painterOf } from "../colours";
import { useDocument } from "../document";
import { count, counted, duration, percent, signed } from "../format";
import { PodLink, Shown } from "../parts";
import type { Run } from "../run";
import { theme } from "../store";
import { MapCanvas } from "./canvas";
import { colourMode, groupLabel, LegendBox, usePainter } from "./map";
import { ProposalForm, proposalWords, type Proposal } from "./proposals";

const CHOICES_PAUSE = 10_000;
const COUNTS: Record<string, string> = { placed: "newly placed", pending: "newly pending", moved: "moved or replaced" };

type Trial = { state: "none" } | { state: "trying" } | { state: "failed"; text: string } | { state: "tried"; question: WhatIf; outcome: Outcome };

export function WhatIfView({ run }: { run: Run }) {
  const document = useDocument<Choices>(run, "what-if", {}, CHOICES_PAUSE);
  const [changes, setChanges] = useState<Proposal[]>([]);
  const [trial, setTrial] = useState<Trial>({ state: "none" });
  const controller = useRef<AbortController | null>(null);
  useEffect(() => () => controller.current?.abort(), []);
  const attempt = async (): Promise<void> => {
    controller.current?.abort();
    const own = (controller.current = new AbortController());
    const question: WhatIf = { changes };
    setTrial({ state: "trying" });
    try {
      const outcome = await post<Outcome>(run.timeless("what-if"), question, own.signal);
      setTrial({ state: "tried", question, outcome });
    } catch (error) {
      if (!own.signal.aborted) setTrial({ state: "failed", text: (error as Error).message });
    }
  };
  const edit = (next: Proposal[]): void => {
    setChanges(next);
    setTrial({ state: "none" });
  };
  return (
    <>
      <h1 tabIndex={-1}>What if</h1>
      <Shown document={document} what="the choices" empty={(choices) => (choices.kinds.length ? "" : "Nothing can be tried here.")}>
        {(choices) => (
          <section class="panel" aria-label="Changes">
            <ProposalForm run={run} choices={choices} add={(proposal) => edit([...changes, proposal])} />
            {changes.length > 0 ? (
              <ol class="proposals" data-testid="proposals">
                {changes.map((each, at) => (
                  <li key={at}>
                    {proposalWords(each)}{" "}
                    <button type="button" class="quiet" aria-label={`Remove: ${proposalWords(each)}`} onClick={() => edit(changes.filter((_, place) => place !== at))}>
                      ✕
                    </button>
                  </li>
                ))}
              </ol>
            ) : (
              <p class="dim empty">No changes yet. Add one, or several that happen at once; nothing is carried out by trying.</p>
            )}
            {changes.length > 0 && (
              <button type="button" class="primary" disabled={trial.state === "trying"} onClick={() => void attempt()} data-testid="try">
                {trial.state === "trying" ? "Trying…" : "Try it"}
              </button>
            )}
          </section>
        )}
      </Shown>
      <div class="stack" aria-busy={trial.state === "trying"}>
        <p class="dim" role="status">
          {trial.state === "trying" && "The scheduler is run on a copy of the cluster…"}
          {trial.state === "tried" && `Tried: ${counted(trial.outcome.before.pending, "pod")} without a node now, ${count(trial.outcome.after.pending)} then.`}
        </p>
        {trial.state === "failed" && (
          <p class="fault" role="alert">
            {trial.text}
          </p>
        )}
        {trial.state === "tried" && <Result run={run} outcome={trial.outcome} />}
        {trial.state === "tried" && <DoIt run={run} question={trial.question} choices={document.value} done={() => edit([])} />}
      </div>
    </>
  );
}

// -- the result ----------------------------------------------------------------------------------------

function Result({ run, outcome }: { run: Run; outcome: Outcome }) {
  const { before, after } = outcome;
  const names = Object.keys({ ...before.utilisation, ...after.utilisation });
  return (
    <>
      <section class="panel" aria-label="Result" data-testid="outcome">
        <h2>{outcome.changes.join("; ") || "Result"}</h2>
        <p class="dim">Quiet again after {duration(outcome.seconds)} of virtual time.</p>
        <div class="columns even">
          <table class="list totals">
            <thead>
              <tr>
                <th scope="col">
                  <span class="unseen">Figure</span>
                </th>
                <th scope="col" class="number">
                  Now
                </th>
                <th scope="col" class="number">
                  Then
                </th>
                <th scope="col" class="number">
                  Difference
                </th>
              </tr>
            </thead>
            <tbody>
              <Total name="nodes" before={before.nodes} after={after.nodes} />
              <Total name="pods on nodes" before={before.placed} after={after.placed} />
              <Total name="pods without a node" before={before.pending} after={after.pending} bad />
              {names.map((name) => (
                <tr key={name}>
                  <th scope="row">{name} requested</th>
                  <td class="number">{share(before.utilisation[name])}</td>
                  <td class="number">{share(after.utilisation[name])}</td>
                  <td class="number">{points(before.utilisation[name], after.utilisation[name])}</td>
                </tr>
              ))}
            </tbody>
          </table>
          <ul class="tiles">
            {Object.entries(outcome.counts).map(([name, value]) => (
              <li key={name} class={value ? "tile" : "tile none"}>
                <span class="tile-name">{COUNTS[name] ?? name}</span>
                <b data-testid={`outcome-${name}`}>{count(value)}</b>
              </li>
            ))}
          </ul>
        </div>
        {outcome.remarks.map((text) => (
          <p key={text} class="remark">
            {text}
          </p>
        ))}
        <Listed title="Why pods are pending then" list={outcome.why} open />
        <Listed title="Pods without a node then" list={outcome.newlyPending} pods total={outcome.counts.pending} />
        <Listed title="Pods with a node then" list={outcome.newlyPlaced} pods total={outcome.counts.placed} />
        <Listed title="Pods that move" list={outcome.moved} total={outcome.counts.moved} />
      </section>
      <Preview run={run} outcome={outcome} />
    </>
  );
}

function Total({ name, before, after, bad = false }: { name: string; before: number; after: number; bad?: boolean }) {
  return (
    <tr>
      <th scope="row">{name}</th>
      <td class="number">{count(before)}</td>
      <td class="number">{count(after)}</td>
      <td class={`number ${bad && after > before ? "worse" : ""}`}>{after === before ? "–" : signed(after - before)}</td>
    </tr>
  );
}

function share(value: number | undefined): string {
  return value === undefined ? "–" : percent(value);
}

function points(before: number | undefined, after: number | undefined): string {
  if (before === undefined || after === undefined) return "–";
  const difference = (after - before) * 100;
  return Math.abs(difference) < 0.05 ? "–" : `${difference > 0 ? "+" : ""}${difference.toFixed(1)} points`;
}

function Listed({ title, list, pods = false, total, open = false }: { title: string; list: string[]; pods?: boolean; total?: number | undefined; open?: boolean }) {
  if (!list.length) return null;
  const all = Math.max(total ?? 0, list.length);
  // New pods of a workload have no names, so many lines are the same.
  const times = new Map<string, number>();
  for (const each of list) times.set(each, (times.get(each) ?? 0) + 1);
  return (
    <details open={open}>
      <summary>
        {title}: {count(all)}
      </summary>
      <ul class="plain">
        {[...times].map(([each, number]) => (
          <li key={each}>
            {number > 1 && `${count(number)} × `}
            {pods ? <PodLink pod={each} /> : each}
          </li>
        ))}
      </ul>
      {all > list.length && <p class="dim">and {counted(all - list.length, "more")}</p>}
    </details>
  );
}

function Preview({ run, outcome }: { run: Run; outcome: Outcome }) {
  const cluster = useMemo(() => new Cluster(outcome.nodes), [outcome]);
  const mode = colourMode(run).replace(/^(verdict|score).*/, "use:cpu");
  const after = useMemo(() => painterOf(cluster, mode, theme.value, null), [cluster, mode, theme.value]);
  const before = usePainter(run);
  return (
    <section class="panel" aria-label="Maps before and after" data-testid="preview">
      <div class="maps two preview">
        <figure class="map-frame">
          <figcaption>Now</figcaption>
          {run.cluster && before && <MapCanvas cluster={run.cluster} painter={before} label={groupLabel(run.cluster)} theme={theme.value} structure={run.structure.value} name="Map now" />}
        </figure>
        <figure class="map-frame">
          <figcaption>Then</figcaption>
          {cluster.size ? <MapCanvas cluster={cluster} painter={after} label={groupLabel(cluster)} theme={theme.value} structure={0} name="Map then" /> : <p class="dim pad">No node is left.</p>}
        </figure>
      </div>
      <LegendBox legend={after.legend()} />
    </section>
  );
}

// -- doing it ------------------------------------------------------------------------------------------

function DoIt({ run, question, choices, done }: { run: Run; question: WhatIf; choices: Choices | null; done: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [state, setState] = useState<{ busy: boolean; error: string; applied: Applied | null }>({ busy: false, error: "", applied: null });
  if (!run.info.writable) return null;
  const refused = question.changes.filter((each) => !choices?.applicable.includes(each.kind));
  if (refused.length) return <p class="dim">Not everything of this can be carried out from here: {refused.map(proposalWords).join("; ")}.</p>;
  const act = async (): Promise<void> => {
    setState({ busy: true, error: "", applied: null });
    try {
      setState({ busy: false, error: "", applied: await post<Applied>(run.timeless("apply"), question) });
    } catch (error) {
      setState({ busy: false, error: (error as Error).message, applied: null });
    }
    dialog.current?.close();
  };
  return (
    <section class="panel" aria-label="Carry out">
      {!state.applied && (
        <button type="button" class="danger" onClick={() => dialog.current?.showModal()} data-testid="do-it">
          Do it…
        </button>
      )}
      {state.error && (
        <p class="fault" role="alert">
          {state.error}
        </p>
      )}
      {state.applied && (
        <div data-testid="applied">
          <h2>Done</h2>
          <ul class="plain">
            {state.applied.done.map((text) => (
              <li key={text}>{text}</li>
            ))}
            {state.applied.remarks.map((text) => (
              <li key={text} class="remark">
                {text}
              </li>
            ))}
          </ul>
          <button type="button" onClick={done}>
            Begin anew
          </button>
        </div>
      )}
      <dialog ref={dialog} aria-labelledby="do-it-title">
        <h2 id="do-it-title">Change {run.info.name}?</h2>
        <ul>
          {question.changes.map((each, at) => (
            <li key={at}>{proposalWords(each)}</li>
          ))}
        </ul>
        <p>This is carried out in the cluster, and cannot be undone from here.</p>
        <div class="toolbar">
          <button type="button" onClick={() => dialog.current?.close()} disabled={state.busy}>
            Cancel
          </button>
          <button type="button" class="danger" onClick={() => void act()} disabled={state.busy} data-testid="confirm">
            {state.busy ? "Working…" : "Do it"}
          </button>
        </div>
      </dialog>
    </section>
  );
}
