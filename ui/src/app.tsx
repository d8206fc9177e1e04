/** Frame of the page: head, views, time line. */

import { Component, type ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { href, route, setParams } from "./route";
import type { Run } from "./run";
import { chosen, opening, ownTheme, player, runs, switchTheme, theme, version } from "./store";
import { Transport } from "./transport";
import { Figures } from "./views/figures";
import { MapView } from "./views/map";
import { NodeView } from "./views/node";
import { PodView } from "./views/pod";
import { PodsView } from "./views/pods";
import { QueuesView } from "./views/queues";
import { TimeView } from "./views/time";
import { WhatIfView } from "./views/what-if";

interface View {
  path: string;
  label: string;
  shown: (run: Run) => boolean;
}

const VIEWS: View[] = [
  { path: "map", label: "Map", shown: () => true },
  { path: "queues", label: "Queues", shown: () => true },
  { path: "pods", label: "Pods", shown: () => true },
  { path: "time", label: "Time", shown: () => true },
  { path: "what-if", label: "What if", shown: (run) => run.info.whatIf },
];
const PARENT: Record<string, string> = { pod: "pods", node: "map", "": "map" };

export function App() {
  const state = opening.value;
  if (state.state === "loading") return <Notice title="kubesched" text="Loading…" busy />;
  if (state.state === "failed") return state.status === 401 || state.status === 403 ? <Refused text={state.text} /> : <Notice title="No connection" text={`${state.text}. Trying again…`} busy />;
  const run = chosen.value;
  if (!run) return <Notice title="kubesched" text="There is nothing to show." />;
  if (runs.value.some((each) => each.connection.value.state === "refused")) return <Refused text="The session is no longer valid" />;
  return (
    <>
      <a class="skip" href="#main" onClick={skip}>
        Skip to the content
      </a>
      <Head run={run} />
      {runs.value.map((each) => (
        <Figures key={each.info.id} run={each} />
      ))}
      <Remarks />
      <Main run={run} />
      {player.value?.present && <Transport player={player.value} />}
    </>
  );
}

/** What is not shown of a run, in words. */
function Remarks() {
  const all = runs.value.flatMap((run) => run.info.remarks.map((text) => (runs.value.length > 1 ? `${run.info.name}: ${text}` : text)));
  if (!all.length) return null;
  return (
    <section class="banner" aria-label="Remarks">
      {all.map((text) => (
        <p key={text} class="remark">
          {text}
        </p>
      ))}
    </section>
  );
}

function skip(event: MouseEvent): void {
  event.preventDefault();
  document.getElementById("main")?.focus();
}

function Main({ run }: { run: Run }) {
  const path = route.value.path;
  const name = path[0] ?? "map";
  const main = useRef<HTMLElement>(null);
  const address = path.join("/");
  const before = useRef(address);
  useEffect(() => {
    document.title = `${path.slice(1).join("/") || VIEWS.find((view) => view.path === name)?.label || "Map"} · ${run.info.name} · kubesched`;
    // Who follows a link with the keyboard or a screen reader goes on at the heading of the new view.
    if (before.current !== address) main.current?.querySelector<HTMLElement>("h1")?.focus();
    before.current = address;
  }, [address, run]);
  return (
    <main id="main" tabIndex={-1} ref={main} class={`view view-${name}`} data-testid={`view-${name}`}>
      <Boundary key={address}>{content(name, path, run)}</Boundary>
    </main>
  );
}

/** A view that fails does not take the rest of the page along. */
class Boundary extends Component<{ children: ComponentChildren }, { error: string }> {
  override state = { error: "" };

  static override getDerivedStateFromError(error: unknown): { error: string } {
    return { error: error instanceof Error ? error.message : String(error) };
  }

  override render() {
    return this.state.error ? (
      <p class="fault" role="alert">
        This view failed: {this.state.error}. Load the page anew; if that does not help, please report it.
      </p>
    ) : (
      this.props.children
    );
  }
}

function content(name: string, path: string[], run: Run): ComponentChildren {
  const key = `${run.info.id}/${path.slice(1).join("/")}`;
  if (name === "map") return <MapView />;
  if (name === "queues") return <QueuesView key={key} run={run} />;
  if (name === "pods") return <PodsView key={key} run={run} />;
  if (name === "pod" && path.length === 3) return <PodView key={key} run={run} namespace={path[1]} name={path[2]} />;
  if (name === "node" && path.length === 2) return <NodeView key={key} run={run} name={path[1]} />;
  if (name === "time") return <TimeView />;
  if (name === "what-if") return <WhatIfView key={key} run={run} />;
  return (
    <section class="panel">
      <h1 tabIndex={-1}>Not found</h1>
      <p>
        There is no such view. <a href={href(["map"])}>To the map</a>
      </p>
    </section>
  );
}

const MODES: Record<string, string> = { live: "live cluster, read-only", embedded: "embedded cluster", snapshot: "snapshot", recording: "recording" };

function Head({ run }: { run: Run }) {
  const name = route.value.path[0] ?? "";
  const current = PARENT[name] ?? name;
  return (
    <header class="head">
      <div class="brand">
        <img src="./icon.svg" alt="" width="22" height="22" />
        <span class="title" title={`kubesched ${version.value}`}>
          {runs.value.map((each) => each.info.name || "kubesched").join(" and ")}
        </span>
        <span class="badge">{MODES[run.info.mode] ?? run.info.mode}</span>
      </div>
      <nav aria-label="Views">
        {VIEWS.filter((view) => view.shown(run)).map((view) => (
          <a key={view.path} href={href([view.path])} aria-current={current === view.path ? "page" : undefined} data-testid={`nav-${view.path}`}>
            {view.label}
          </a>
        ))}
      </nav>
      <div class="tools">
        {runs.value.length > 1 && <RunChoice run={run} />}
        <Connections />
        <button type="button" class="quiet" onClick={switchTheme} data-testid="theme" aria-label={`Switch to the ${theme.value === "dark" ? "light" : "dark"} theme`} title={ownTheme.value ? "theme of your choice" : "theme of the system"}>
          {theme.value === "dark" ? "☀" : "☾"}
        </button>
      </div>
    </header>
  );
}

/** Run that views about queues, pods and nodes are about; map and time show both. */
function RunChoice({ run }: { run: Run }) {
  return (
    <label class="choice">
      <span class="unseen">Run</span>
      <select value={String(run.info.id)} onChange={(event) => setParams({ run: event.currentTarget.value })} data-testid="run">
        {runs.value.map((each) => (
          <option key={each.info.id} value={String(each.info.id)}>
            {each.info.name}
          </option>
        ))}
      </select>
    </label>
  );
}

const CONNECTIONS: Record<string, string> = { loading: "loading…", live: "live", still: "", retrying: "reconnecting…", refused: "no access", failed: "failed" };

function Connections() {
  const all = runs.value.map((run) => run.connection.value);
  const worst = all.find((each) => each.state !== "live" && each.state !== "still") ?? all[0];
  if (!worst) return null;
  return (
    <span class={`connection ${worst.state}`} role="status" data-testid="connection" data-state={worst.state} title={worst.text}>
      {CONNECTIONS[worst.state]}
    </span>
  );
}

function Notice({ title, text, busy = false }: { title: string; text: string; busy?: boolean }) {
  return (
    <main class="notice" aria-busy={busy} data-testid="notice">
      <img src="./icon.svg" alt="" width="48" height="48" />
      <h1>{title}</h1>
      <p role="status">{text}</p>
    </main>
  );
}

function Refused({ text }: { text: string }) {
  return (
    <main class="notice" data-testid="refused">
      <img src="./icon.svg" alt="" width="48" height="48" />
      <h1>Open the link that the command printed</h1>
      <p role="status">{text}.</p>
      <p>
        kubesched prints a link with a key when it starts, such as <code>http://127.0.0.1:10260/ui/?key=…</code>. It opens this page once; the browser then stays signed in. On
        the secure port of <code>kubesched run</code>, send a bearer token or a client certificate.
      </p>
    </main>
  );
}
