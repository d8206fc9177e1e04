/** Cluster map: one run, or two side by side, with what it is coloured by, a legend, and the same as a table. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Cluster } from "../cluster";
import { modes, painter as painterOf, type Legend, type Mode, type Painter } from "../colours";
import { count, decimal } from "../format";
import type { ClusterMap } from "../map";
import { NodeLink, PodLink } from "../parts";
import { go, href, route, setParams } from "../route";
import type { Run } from "../run";
import { chosen, runs, theme, verdicts } from "../store";
import { MapCanvas } from "./canvas";
import { NodeTable } from "./node-table";
import { Happenings } from "./happenings";

const ZONES = ["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone", "zone", "topology.kubernetes.io/region", "rack"];

export function MapView() {
  const table = route.value.params.get("as") === "table";
  const maps = useRef(new Map<Run, ClusterMap>());
  const run = chosen.value!;
  const shown = runs.value;
  return (
    <>
      <h1 class="unseen" tabIndex={-1}>
        Map of the cluster
      </h1>
      <Tools run={run} maps={maps.current} table={table} />
      <div class={shown.length > 1 ? "maps two" : "maps"}>
        {shown.map((each) => (
          <RunMap key={each.info.id} run={each} table={table} titled={shown.length > 1} onMap={(map) => maps.current.set(each, map)} />
        ))}
        <aside class="side" aria-label="Legend and lists">
          <Side run={run} />
        </aside>
      </div>
    </>
  );
}

// -- what is shown -------------------------------------------------------------------------------------

export function groupLabel(cluster: Cluster | null): string {
  const wanted = route.value.params.get("group");
  if (wanted === "-" || !cluster) return "";
  if (wanted && cluster.labels.has(wanted)) return wanted;
  return ZONES.find((key) => cluster.labels.has(key)) ?? "";
}

export function colourMode(run: Run): string {
  const wanted = route.value.params.get("colour");
  const pod = route.value.params.get("pod");
  if (wanted && (pod || !/^(verdict|score)/.test(wanted))) return wanted;
  return pod ? "verdict" : `use:${run.cluster?.resource("cpu") ? "cpu" : (run.cluster?.resources[0]?.name ?? "")}`;
}

export function usePainter(run: Run): Painter | null {
  const cluster = run.cluster;
  const mode = colourMode(run);
  const found = verdicts(run).verdicts;
  const [loads, structure, shade] = [run.loads.value, run.structure.value, theme.value];
  return useMemo(() => cluster && painterOf(cluster, mode, shade, found), [cluster, mode, shade, found, loads, structure]);
}

function RunMap({ run, table, titled, onMap }: { run: Run; table: boolean; titled: boolean; onMap: (map: ClusterMap) => void }) {
  const painter = usePainter(run);
  const label = groupLabel(run.cluster);
  const connection = run.connection.value;
  const found = verdicts(run);
  const frame = useRef<HTMLElement>(null);
  const map = useRef<ClusterMap | null>(null);
  const node = route.value.params.get("node");
  const loads = run.loads.value;
  useEffect(() => {
    const row = node && run.cluster ? run.cluster.row(node) : -1;
    if (!map.current || row < 0) return;
    map.current.focus = row;
    map.current.reveal(row);
  }, [node, loads]);
  useEffect(() => {
    const element = frame.current;
    const pick = (event: Event) => go(["node", run.cluster!.names[(event as CustomEvent<number>).detail]], { run: runs.value.length > 1 ? String(run.info.id) : "" });
    element?.addEventListener("pick", pick);
    return () => element?.removeEventListener("pick", pick);
  }, [run]);
  return (
    <section class="map-frame" ref={frame} aria-label={`Map of ${run.info.name}`} data-testid={`map-${run.info.id}`}>
      {titled && <h2>{run.info.name}</h2>}
      {found.error && (
        <p class="fault" role="alert">
          {found.pod}: {found.error}
        </p>
      )}
      {connection.state === "failed" && (
        <p class="fault" role="alert">
          {connection.text}
        </p>
      )}
      {!run.cluster || !painter ? (
        connection.state !== "failed" && (
          <p class="dim pad" aria-busy="true">
            Loading the cluster…
          </p>
        )
      ) : run.cluster.size === 0 ? (
        <p class="dim pad empty">The cluster has no nodes.</p>
      ) : table ? (
        <NodeTable run={run} cluster={run.cluster} painter={painter} label={label} />
      ) : (
        <MapCanvas
          cluster={run.cluster}
          painter={painter}
          label={label}
          theme={theme.value}
          structure={run.structure.value}
          name={`Map of ${run.info.name}, ${painter.legend().title}`}
          own={found.verdicts?.own ?? -1}
          run={run}
          onMap={(made) => {
            map.current = made;
            onMap(made);
          }}
        />
      )}
    </section>
  );
}

// -- tools ---------------------------------------------------------------------------------------------

function Tools({ run, maps, table }: { run: Run; maps: Map<Run, ClusterMap>; table: boolean }) {
  void run.structure.value;
  void run.loads.value;
  const cluster = run.cluster;
  const found = verdicts(run).verdicts;
  const each = (act: (map: ClusterMap) => void) => () => maps.forEach(act);
  return (
    <div class="toolbar">
      <label class="choice">
        Group by
        <select value={groupLabel(cluster) || "-"} onChange={(event) => setParams({ group: event.currentTarget.value })} data-testid="group">
          <option value="-">nothing</option>
          {cluster && [...cluster.labels.keys()].map((key) => <option key={key}>{key}</option>)}
        </select>
      </label>
      <label class="choice">
        Colour by
        <select value={colourMode(run)} onChange={(event) => setParams({ colour: event.currentTarget.value })} data-testid="colour">
          {cluster &&
            [...byGroup(modes(cluster, found))].map(([group, list]) => (
              <optgroup key={group} label={group}>
                {list.map((mode) => (
                  <option key={mode.id} value={mode.id}>
                    {mode.label}
                  </option>
                ))}
              </optgroup>
            ))}
        </select>
      </label>
      <Find run={run} maps={maps} />
      <span class="buttons" role="group" aria-label="Zoom">
        <button type="button" onClick={each((map) => map.zoom(1.6))} aria-label="Zoom in" disabled={table} data-testid="zoom-in">
          +
        </button>
        <button type="button" onClick={each((map) => map.zoom(1 / 1.6))} aria-label="Zoom out" disabled={table} data-testid="zoom-out">
          −
        </button>
        <button type="button" onClick={each((map) => map.whole())} disabled={table} data-testid="zoom-all">
          All
        </button>
      </span>
      <button type="button" aria-pressed={table} onClick={() => setParams({ as: table ? "" : "table" })} data-testid="as-table">
        Table
      </button>
    </div>
  );
}

function byGroup(list: Mode[]): Map<string, Mode[]> {
  const groups = new Map<string, Mode[]>();
  for (const mode of list) groups.set(mode.group, [...(groups.get(mode.group) ?? []), mode]);
  return groups;
}

const MOST_PROPOSED = 12;
const CLOSE = 130;

function Find({ run, maps }: { run: Run; maps: Map<Run, ClusterMap> }) {
  const [text, setText] = useState("");
  const names = run.cluster?.names ?? [];
  const proposed: string[] = [];
  if (text) for (const name of names) if (proposed.length < MOST_PROPOSED && name.includes(text)) proposed.push(name);
  return (
    <form
      class="find"
      role="search"
      onSubmit={(event) => {
        event.preventDefault();
        const name = names.includes(text) ? text : proposed[0];
        if (!name) return;
        for (const [each, map] of maps) {
          map.focus = each.cluster?.row(name) ?? -1;
          map.reveal(map.focus, CLOSE);
        }
      }}
    >
      <label>
        <span class="unseen">Find a node</span>
        <input type="search" placeholder="Find a node…" list="node-names" value={text} onInput={(event) => setText(event.currentTarget.value)} data-testid="find-node" />
      </label>
      <datalist id="node-names">
        {proposed.map((name) => (
          <option key={name} value={name} />
        ))}
      </datalist>
    </form>
  );
}

// -- beside the map ------------------------------------------------------------------------------------

function Side({ run }: { run: Run }) {
  const painter = usePainter(run);
  const pod = route.value.params.get("pod");
  return (
    <>
      {pod && (
        <section class="selected">
          <h2>Selected pod</h2>
          <PodLink pod={pod} />{" "}
          <button type="button" class="quiet" aria-label="Clear the selected pod" onClick={() => setParams({ pod: "", colour: /^(verdict|score)/.test(route.value.params.get("colour") ?? "") ? "" : (route.value.params.get("colour") ?? "") })}>
            ✕
          </button>
        </section>
      )}
      {painter && <LegendBox legend={painter.legend()} />}
      {painter && run.cluster && <Extremes run={run} cluster={run.cluster} painter={painter} />}
      <Happenings run={run} short />
      <p>
        <a href={href(["time"])}>All that happened, by time</a>
      </p>
    </>
  );
}

export function LegendBox({ legend }: { legend: Legend }) {
  return (
    <section class="legend" data-testid="legend">
      <h2>{legend.title}</h2>
      {legend.kind === "scale" ? (
        <div class="ramp">
          <div class="ramp-bar" aria-hidden="true" style={{ background: `linear-gradient(to right, ${legend.stops.join(", ")})` }} />
          <div class="ramp-ends">
            <span>{legend.min}</span>
            <span>{legend.middle}</span>
            <span>{legend.max}</span>
          </div>
        </div>
      ) : (
        <ul class="classes">
          {legend.entries.map((entry) => (
            <li key={entry.label}>
              <span class="swatch" style={{ background: entry.colour }} />
              <span class="entry">{entry.label}</span>
              <span class="number">{count(entry.nodes)}</span>
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}

const MOST_EXTREMES = 6;

/** Nodes with the greatest values of what the map is coloured by. */
function Extremes({ run, cluster, painter }: { run: Run; cluster: Cluster; painter: Painter }) {
  void run.tick.value;
  if (painter.legend().kind !== "scale") return null;
  const best: { row: number; value: number }[] = [];
  for (let row = 0; row < cluster.rows; row++) {
    const value = cluster.names[row] ? painter.value(row) : NaN;
    if (!(value > (best.length < MOST_EXTREMES ? -Infinity : best[best.length - 1].value))) continue;
    let at = best.length;
    while (at > 0 && best[at - 1].value < value) at--;
    best.splice(at, 0, { row, value });
    if (best.length > MOST_EXTREMES) best.pop();
  }
  if (!best.length) return null;
  const share = painter.text(best[0].row).includes("%");
  return (
    <section data-testid="extremes">
      <h2>Highest{runs.value.length > 1 && ` in ${run.info.name}`}</h2>
      <ol class="extremes">
        {best.map(({ row, value }) => (
          <li key={row} title={painter.text(row)}>
            <NodeLink node={cluster.names[row]} /> <span class="number">{share ? `${decimal(value * 100)} %` : decimal(value)}</span>
          </li>
        ))}
      </ol>
    </section>
  );
}
