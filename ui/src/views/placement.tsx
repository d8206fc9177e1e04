/** Why a pod is on its node: scores of the best nodes by plugin, as bars, and when another node would be chosen. */

import type { NodeScore, Placed } from "../api";
import { count, counted, moment } from "../format";
import { NodeLink } from "../parts";
import { Obstacles, Other } from "./explanation";

// As on the map, told apart by people with colour vision deficiencies; a plugin keeps its place in all bars.
const PLUGINS = 12;

export function Placement({ one }: { one: Placed }) {
  const record = one.decision;
  return (
    <article class="explained" data-testid="placed">
      <p class="verdict">
        On <NodeLink node={one.node} />
        {one.rank !== null && (
          <>
            : place <b>{count(one.rank)}</b> of {counted(one.feasible, "node")} that fit, of {count(one.nodes)}
          </>
        )}
        {one.tied > 1 && <span>; {count(one.tied)} tied for the first place, and chance chose</span>}
      </p>
      <p class="why">{one.decided}</p>
      {record && (
        <p class="dim">
          Decided at {moment(record.at)}, attempt {record.attempt ?? 1}: {count(record.feasible ?? 0)} of {counted(record.nodes ?? 0, "node")} fitted
          {(record.ties ?? 0) > 1 ? `; ${record.ties} tied, and chance chose ${record.node}` : ""}.
        </p>
      )}
      {one.remarks.map((text) => (
        <p key={text} class="remark">
          {text}
        </p>
      ))}
      {one.problems.length > 0 && <h3>It would be rejected here now</h3>}
      <Obstacles list={one.problems} of={0} />
      {one.best.length > 0 && <Scores best={one.best} own={one.node} />}
      {one.alternatives.length > 0 && <h3>When another node would be chosen</h3>}
      {one.alternatives.map((other) => (
        <Other key={other.node} other={other} own={one.node} weights={Object.fromEntries(one.best[0]?.scores.map((each) => [each.plugin, each.weight]) ?? [])} />
      ))}
      {one.reasons.length > 0 && (
        <>
          <h3>Nodes that do not fit</h3>
          <Obstacles list={one.reasons} of={one.nodes} />
        </>
      )}
    </article>
  );
}

function Scores({ best, own }: { best: NodeScore[]; own: string }) {
  const plugins = best[0].scores.map((each) => each.plugin);
  const most = Math.max(1, ...best.map((node) => node.total));
  const differ = (plugin: string) => new Set(best.map((node) => node.scores.find((each) => each.plugin === plugin)?.score)).size > 1;
  return (
    <>
      <h3>Scores of the best nodes, by plugin</h3>
      <ul class="key" aria-hidden="true">
        {plugins.map((plugin, at) => (
          <li key={plugin} class={differ(plugin) ? "" : "dim"}>
            <span class={`swatch plugin-${at % PLUGINS}`} /> {plugin} × {best[0].scores[at].weight}
            {!differ(plugin) && " (equal)"}
          </li>
        ))}
      </ul>
      <div class="scroll">
        <table class="scores" data-testid="scores">
          <thead>
            <tr>
              <th scope="col">Node</th>
              <th scope="col" class="number">
                Total
              </th>
              <th scope="col">Weighted scores</th>
            </tr>
          </thead>
          <tbody>
            {best.map((node) => (
              <tr key={node.node} class={node.node === own ? "own" : ""}>
                <th scope="row">
                  {node.node === own && <span title="the pod's node">★ </span>}
                  <NodeLink node={node.node} />
                </th>
                <td class="number">{count(node.total)}</td>
                <td class="stack-cell">
                  <div class="stack-bar" role="img" aria-label={node.scores.map((each) => `${each.plugin} ${each.score}`).join(", ")}>
                    {node.scores.map((each, at) => (
                      <span key={each.plugin} class={`plugin-${at % PLUGINS}`} title={`${each.plugin} ${each.score}: raw ${each.raw}, normalised ${each.normalized}, weight ${each.weight}`} style={{ width: `${(Math.max(0, each.score) / most) * 100}%` }}>
                        {each.score / most > 0.05 ? each.score : ""}
                      </span>
                    ))}
                  </div>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <details>
        <summary>Raw and normalised scores</summary>
        <div class="scroll">
          <table class="list">
            <thead>
              <tr>
                <th scope="col">Plugin</th>
                <th scope="col" class="number">
                  Weight
                </th>
                {best.map((node) => (
                  <th key={node.node} scope="col" class="number">
                    {node.node}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {plugins.map((plugin, at) => (
                <tr key={plugin}>
                  <th scope="row">{plugin}</th>
                  <td class="number">{best[0].scores[at].weight}</td>
                  {best.map((node) => (
                    <td key={node.node} class="number nowrap">
                      {node.scores[at]?.score} <span class="dim">({node.scores[at]?.raw} → {node.scores[at]?.normalized})</span>
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </details>
    </>
  );
}
