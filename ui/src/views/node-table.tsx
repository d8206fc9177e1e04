/** The map as a table, for people who cannot see it, and for sorting. */

import { useMemo, useState } from "preact/hooks";
import type { Cluster } from "../cluster";
import type { Painter } from "../colours";
import { count, percent } from "../format";
import { Gauge, NodeLink } from "../parts";
import type { Run } from "../run";

const PART = 100;
const MOST_RESOURCES = 4;

export function NodeTable({ run, cluster, painter, label }: { run: Run; cluster: Cluster; painter: Painter; label: string }) {
  const [sort, setSort] = useState("value");
  const [down, setDown] = useState(true);
  const [most, setMost] = useState(PART);
  const tick = run.tick.value;
  const resources = cluster.resources.slice(0, MOST_RESOURCES);
  const rows = useMemo(() => sorted(cluster, painter, label, sort, down), [cluster, painter, label, sort, down, tick]);
  const head = (key: string, text: string) => (
    <th scope="col" aria-sort={sort === key ? (down ? "descending" : "ascending") : "none"}>
      <button
        type="button"
        class="sort"
        onClick={() => {
          setDown(sort === key ? !down : key !== "name" && key !== "group");
          setSort(key);
        }}
      >
        {text} <span aria-hidden="true">{sort === key ? (down ? "▼" : "▲") : ""}</span>
      </button>
    </th>
  );
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Nodes">
      <table class="list" data-testid="node-table">
        <thead>
          <tr>
            {head("name", "Node")}
            {label && head("group", label)}
            {head("value", painter.legend().title)}
            {resources.map((each) => head(`use:${each.name}`, each.name))}
            <th scope="col">Status</th>
          </tr>
        </thead>
        <tbody>
          {rows.slice(0, most).map((row) => (
            <tr key={row}>
              <th scope="row">
                <NodeLink node={cluster.names[row]} />
              </th>
              {label && <td>{cluster.labels.get(label)?.at(row)}</td>}
              <td>{painter.text(row)}</td>
              {resources.map((each) => (
                <td key={each.name} class="nowrap">
                  <Gauge share={cluster.share(each, row)} label={each.name} /> {Number.isNaN(cluster.share(each, row)) ? "–" : percent(cluster.share(each, row))}
                </td>
              ))}
              <td>{cluster.status.at(row)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {rows.length > most && (
        <p>
          <button type="button" onClick={() => setMost(most + PART)}>
            {count(rows.length - most)} more
          </button>
        </p>
      )}
    </div>
  );
}

function sorted(cluster: Cluster, painter: Painter, label: string, sort: string, down: boolean): number[] {
  const rows: number[] = [];
  for (let row = 0; row < cluster.rows; row++) if (cluster.names[row]) rows.push(row);
  const sign = down ? -1 : 1;
  if (sort === "name" || sort === "group") {
    const texts = cluster.labels.get(label);
    const compare = new Intl.Collator("en", { numeric: true }).compare;
    const key = (row: number) => (sort === "name" ? cluster.names[row] : (texts?.at(row) ?? ""));
    return rows.sort((a, b) => sign * compare(key(a), key(b)) || a - b);
  }
  const resource = sort.startsWith("use:") ? cluster.resource(sort.slice(4)) : undefined;
  const value = (row: number) => {
    const found = resource ? cluster.share(resource, row) : painter.value(row);
    return Number.isNaN(found) ? -Infinity : found;
  };
  return rows.sort((a, b) => sign * (value(a) - value(b)) || a - b);
}
