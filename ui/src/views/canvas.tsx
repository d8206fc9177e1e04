/** Canvas of a map with pointer, touch and keyboard. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Cluster } from "../cluster";
import type { Painter, Theme } from "../colours";
import { amount, count, percent } from "../format";
import { ClusterMap, MOST_OPEN, PODS_FROM, type Hit } from "../map";
import { Pages } from "../pages";
import { go } from "../route";
import type { Run } from "../run";

interface Properties {
  cluster: Cluster;
  painter: Painter;
  label: string;
  theme: Theme;
  /** Changes with nodes that come and go. */
  structure: number;
  name: string;
  own?: number;
  /** Run whose changes are shown as they happen; none for a preview. */
  run?: Run;
  onMap?: (map: ClusterMap) => void;
}

const DRAG = 4;
const STEP = 1.4;

export function MapCanvas({ cluster, painter, label, theme, structure, name, own = -1, run, onMap }: Properties) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const box = useRef<HTMLDivElement>(null);
  const map = useRef<ClusterMap | null>(null);
  const [tip, setTip] = useState<{ hit: Hit; x: number; y: number } | null>(null);
  const [spoken, setSpoken] = useState("");

  useEffect(() => {
    const made = (map.current = new ClusterMap(canvas.current!));
    onMap?.(made);
    const element = box.current!;
    const observer = new ResizeObserver(() => made.resize(element.clientWidth, element.clientHeight));
    observer.observe(element);
    made.resize(element.clientWidth, element.clientHeight);
    const motion = matchMedia("(prefers-reduced-motion: reduce)");
    const calm = () => (made.calm = motion.matches);
    motion.addEventListener("change", calm);
    const wheel = (event: WheelEvent) => {
      event.preventDefault();
      const place = canvas.current!.getBoundingClientRect();
      made.zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0016)), event.clientX - place.left, event.clientY - place.top);
    };
    // A listener that may prevent scrolling has to say so, which attributes cannot.
    element.addEventListener("wheel", wheel, { passive: false });
    return () => {
      observer.disconnect();
      motion.removeEventListener("change", calm);
      element.removeEventListener("wheel", wheel);
      made.close();
    };
  }, []);

  useEffect(() => map.current?.show(cluster, painter, label, theme), [cluster, painter, label, theme]);
  useEffect(() => map.current?.arrange(false), [structure]);
  useEffect(() => {
    if (map.current) map.current.own = own;
    map.current?.draw();
  }, [own]);
  useFollow(run, map);
  const pointer = usePointer(map, canvas, setTip);
  const words = (row: number) => `${cluster.names[row]}: ${painter.text(row)}`;

  const keys = (event: KeyboardEvent): void => {
    const now = map.current;
    if (!now || event.ctrlKey || event.altKey || event.metaKey) return;
    const arrows: Record<string, [number, number]> = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const arrow = arrows[event.key];
    if (arrow) {
      now.focus = now.focus < 0 && own >= 0 ? own : now.neighbour(now.focus, ...arrow);
      now.reveal(now.focus);
      setSpoken(now.focus >= 0 ? words(now.focus) : "");
      const at = now.placeOf(now.focus);
      if (at) setTip({ hit: { row: now.focus, pod: null }, x: at.x + at.size, y: at.y + at.size });
    } else if (event.key === "Enter" && now.focus >= 0) go(["node", cluster.names[now.focus]]);
    else if (event.key === "+" || event.key === "=") now.focus >= 0 && !now.zoomed ? now.reveal(now.focus, PODS_FROM * 3) : now.zoom(STEP);
    else if (event.key === "-") now.zoom(1 / STEP);
    else if (event.key === "0") now.whole();
    else if (event.key === "Escape") {
      now.focus = -1;
      now.draw();
      setTip(null);
    } else return;
    event.preventDefault();
  };

  return (
    <div class="map-box" ref={box}>
      <canvas
        ref={canvas}
        tabIndex={0}
        role="application"
        aria-roledescription="map of nodes"
        aria-label={`${name}: ${count(cluster.size)} nodes. Arrow keys move from node to node, Enter opens one, plus and minus zoom. The table has the same nodes.`}
        data-testid="map"
        onKeyDown={keys}
        onBlur={() => {
          if (map.current) map.current.focus = -1;
          map.current?.draw();
          setTip(null);
        }}
        {...pointer}
      />
      <div class="unseen" aria-live="polite">
        {spoken}
      </div>
      {tip && tip.hit.row >= 0 && <Tip {...tip} cluster={cluster} painter={painter} label={label} box={box.current} own={tip.hit.row === own} />}
    </div>
  );
}

/** Lets a map follow the changes of its run, and fetches the pods of the nodes that are seen closely. */
function useFollow(run: Run | undefined, map: { current: ClusterMap | null }): void {
  useEffect(() => {
    const now = map.current;
    if (!run || !now) return undefined;
    const pages = new Pages(run, () => {
      now.pages = pages.known;
      now.draw();
    });
    const names = (rows: readonly number[]) => rows.map((row) => run.cluster?.names[row] ?? "").filter(Boolean);
    now.onView = () => {
      const rows = now.size >= PODS_FROM ? now.visible(MOST_OPEN + 1) : [];
      pages.want(rows.length <= MOST_OPEN ? names(rows) : []);
    };
    now.onView();
    const end = run.listen((change, effect) => {
      if (!change || !effect) {
        pages.spoil(null);
        return;
      }
      now.repaint(effect.rows);
      for (const node of change.nodes) now.repaint([node.row]);
      for (const each of change.bound) now.flash(each.row, "bound");
      for (const each of change.preempted) now.flash(each.row, "preempted");
      pages.spoil(names([...effect.rows, ...change.nodes.map((node) => node.row)]));
    });
    return () => {
      end();
      pages.close();
    };
  }, [run]);
}

type Setter = (tip: { hit: Hit; x: number; y: number } | null) => void;

/** Handlers for mouse, pen and touch: hover, click, drag, pinch. */
function usePointer(map: { current: ClusterMap | null }, canvas: { current: HTMLCanvasElement | null }, setTip: Setter) {
  return useMemo(() => {
    const down = new Map<number, { x: number; y: number }>();
    let moved = 0;
    const at = (event: PointerEvent) => {
      const place = canvas.current!.getBoundingClientRect();
      return { x: event.clientX - place.left, y: event.clientY - place.top };
    };
    const hover = (event: PointerEvent) => {
      const now = map.current!;
      const { x, y } = at(event);
      const hit = now.hit(x, y);
      if (hit.row !== now.hover) {
        now.hover = hit.row;
        now.draw();
      }
      canvas.current!.style.cursor = hit.row >= 0 ? "pointer" : now.zoomed ? "grab" : "default";
      setTip(hit.row >= 0 ? { hit, x, y } : null);
    };
    const drag = (event: PointerEvent, before: { x: number; y: number }) => {
      const now = map.current!;
      const point = at(event);
      const others = [...down.entries()].filter(([id]) => id !== event.pointerId).map(([, each]) => each);
      moved += Math.abs(point.x - before.x) + Math.abs(point.y - before.y);
      const other = others[0];
      if (other) {
        const [was, is] = [Math.hypot(before.x - other.x, before.y - other.y), Math.hypot(point.x - other.x, point.y - other.y)];
        if (was > 0) now.zoom(is / was, (point.x + other.x) / 2, (point.y + other.y) / 2);
      } else if (moved > DRAG && now.zoomed) now.pan(point.x - before.x, point.y - before.y);
      down.set(event.pointerId, point);
    };
    return {
      onPointerDown(event: PointerEvent) {
        down.set(event.pointerId, at(event));
        if (down.size === 1) moved = 0;
        canvas.current!.setPointerCapture(event.pointerId);
      },
      onPointerMove(event: PointerEvent) {
        const before = down.get(event.pointerId);
        if (before) drag(event, before);
        else hover(event);
      },
      onPointerUp(event: PointerEvent) {
        const { x, y } = at(event);
        const clicked = down.delete(event.pointerId) && moved <= DRAG && event.button === 0;
        const now = map.current!;
        // One finger scrolls the page unless the map is larger than its frame.
        canvas.current!.style.touchAction = now.zoomed ? "none" : "pan-y";
        const { row, pod } = clicked ? now.hit(x, y) : { row: -1, pod: null };
        if (pod) go(["pod", pod.namespace, pod.name]);
        else if (row >= 0) now.canvas.dispatchEvent(new CustomEvent<number>("pick", { detail: row, bubbles: true }));
      },
      onPointerCancel(event: PointerEvent) {
        down.delete(event.pointerId);
      },
      onPointerLeave() {
        if (map.current) map.current.hover = -1;
        map.current?.draw();
        setTip(null);
      },
    };
  }, []);
}

interface TipProperties {
  hit: Hit;
  x: number;
  y: number;
  cluster: Cluster;
  painter: Painter;
  label: string;
  box: HTMLElement | null;
  own: boolean;
}

const TIP_WIDTH = 290;
const MOST_AMOUNTS = 5;

function Tip({ hit, x, y, cluster, painter, label, box, own }: TipProperties) {
  const { row, pod } = hit;
  const [width, height] = [box?.clientWidth ?? 0, box?.clientHeight ?? 0];
  const across = x + TIP_WIDTH + 20 > width ? { right: `${Math.max(4, width - x + 12)}px` } : { left: `${x + 14}px` };
  const along = y > height / 2 ? { bottom: `${height - y + 12}px` } : { top: `${y + 14}px` };
  const group = cluster.labels.get(label)?.at(row);
  const amounts = cluster.resources.filter((each) => each.allocatable[row] > 0).slice(0, MOST_AMOUNTS);
  const status = cluster.status.at(row);
  return (
    <div class="tip" role="tooltip" style={{ ...across, ...along, maxWidth: `${TIP_WIDTH}px` }} data-testid="tip">
      <b>{cluster.names[row]}</b> {group && <span class="dim">{group}</span>}
      {own && <div>the selected pod is here</div>}
      <div>{painter.text(row)}</div>
      {status && status !== "Ready" && <div>{status}</div>}
      {cluster.taints.at(row) && <div class="dim">taints: {cluster.taints.at(row)}</div>}
      {pod ? (
        <div class="tip-pod">
          <b>
            {pod.namespace}/{pod.name}
          </b>
          <div class="dim">
            {pod.workload} {pod.phase} priority {pod.priority}
          </div>
          {Object.entries(pod.requests).map(([resource, value]) => (
            <div key={resource}>
              {resource} {amount(value, cluster.resource(resource)?.unit ?? "units")}
            </div>
          ))}
        </div>
      ) : (
        <table>
          <tbody>
            {amounts.map((each) => (
              <tr key={each.name}>
                <td>{each.name}</td>
                <td class="number">{percent(cluster.share(each, row))}</td>
                <td class="dim">of {amount(each.allocatable[row], each.unit)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </div>
  );
}
