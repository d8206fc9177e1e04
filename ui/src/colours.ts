/** Colours of the map, which people with colour vision deficiencies tell apart, with their legends. Pure. */

import type { Verdicts } from "./api";
import type { Cluster, Resource, Texts } from "./cluster";
import { amount, count, percent } from "./format";

export type Theme = "light" | "dark";

/** Legend of a scale: amounts from `min` to `max`, in words. */
export interface ScaleLegend {
  kind: "scale";
  title: string;
  min: string;
  middle: string;
  max: string;
  stops: string[];
}

export interface ClassEntry {
  label: string;
  colour: string;
  nodes: number;
}

export interface ClassLegend {
  kind: "classes";
  title: string;
  entries: ClassEntry[];
}

export type Legend = ScaleLegend | ClassLegend;

/** Colour and value of each row. `value` orders rows; NaN for none. */
export interface Painter {
  colour(row: number): number;
  value(row: number): number;
  text(row: number): string;
  legend(): Legend;
}

/** What the map can be coloured by. */
export interface Mode {
  id: string;
  label: string;
  group: string;
}

// Viridis at even distances: luminance rises evenly, so it reads in grey, too.
const VIRIDIS = ["#440154", "#482878", "#3e4a89", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6dcd59", "#b4de2c", "#fde725"];
// From pale to dark blue, for a light ground; its luminance falls evenly.
const BLUES = ["#e3f0b4", "#c2e3b3", "#86cfba", "#48b8c3", "#2196c1", "#2370af", "#273f97", "#0c1f5c"];
// After Okabe and Ito, and Tol's muted scheme.
const CLASSES = ["#4477aa", "#ee8866", "#44bb99", "#ddcc77", "#aa4499", "#99ddff", "#bb5533", "#bbcc33", "#ffaabb", "#117733", "#997700", "#aaaa00"];
const OTHER: Record<Theme, string> = { light: "#8a8f98", dark: "#7d838c" };
const NONE: Record<Theme, string> = { light: "#d5d9df", dark: "#333941" };
const FITS: Record<Theme, string> = { light: "#0e7c86", dark: "#3fc1c9" };
const STATUS: Record<string, string> = { Ready: "#4477aa", Cordoned: "#ddcc77", NotReady: "#ee6644", Failed: "#aa3377" };
/** Most classes with a colour of their own. */
export const MOST_CLASSES = CLASSES.length;

/** `#rrggbb` as a pixel of an image, alpha first in memory order of little-endian machines. */
export function pixel(colour: string): number {
  const value = parseInt(colour.slice(1), 16);
  return ((0xff << 24) | ((value & 0xff) << 16) | (value & 0xff00) | (value >> 16)) >>> 0;
}

const scales = new Map<Theme, Uint32Array>();

/** 256 pixels from little to much; much is always far from the background. */
export function scale(theme: Theme): Uint32Array {
  let found = scales.get(theme);
  if (!found) {
    found = Uint32Array.from({ length: 256 }, (_, at) => pixel(between(stops(theme), at / 255)));
    scales.set(theme, found);
  }
  return found;
}

function stops(theme: Theme): string[] {
  return theme === "dark" ? VIRIDIS : BLUES;
}

function between(colours: string[], share: number): string {
  const at = Math.min(share, 0.9999) * (colours.length - 1);
  const [a, b] = [colours[Math.floor(at)], colours[Math.floor(at) + 1]].map((each) => parseInt(each.slice(1), 16));
  const mix = (shift: number) => {
    const [from, to] = [(a >> shift) & 255, (b >> shift) & 255];
    return Math.round(from + (to - from) * (at % 1)).toString(16).padStart(2, "0");
  };
  return `#${mix(16)}${mix(8)}${mix(0)}`;
}

export function workloadColour(workload: string): string {
  let hash = 0;
  for (let at = 0; at < workload.length; at++) hash = (hash * 31 + workload.charCodeAt(at)) | 0;
  return CLASSES[Math.abs(hash) % CLASSES.length];
}

export function modes(cluster: Cluster, verdicts: Verdicts | null): Mode[] {
  const found: Mode[] = cluster.resources.filter((each) => !each.devices).map((each) => ({ id: `use:${each.name}`, label: `${each.name} requested`, group: "Utilisation" }));
  for (const each of cluster.resources) if (each.devices) found.push({ id: `use:${each.name}`, label: `${each.name} in use`, group: "Utilisation" });
  for (const each of cluster.resources) if (each.unit === "units" && each.name !== "pods") found.push({ id: `free:${each.name}`, label: `${each.name} free`, group: "Free devices" });
  found.push({ id: "status", label: "status", group: "Nodes" }, { id: "taints", label: "taints", group: "Nodes" });
  for (const key of cluster.labels.keys()) found.push({ id: `label:${key}`, label: key, group: "Label" });
  if (verdicts) {
    found.push({ id: "verdict", label: "verdict", group: "Selected pod" });
    if (verdicts.scores.length) found.push({ id: "score:", label: "total score", group: "Selected pod" });
    for (const each of verdicts.scores) found.push({ id: `score:${each.plugin}`, label: `score of ${each.plugin}`, group: "Selected pod" });
  }
  return found;
}

export function painter(cluster: Cluster, mode: string, theme: Theme, verdicts: Verdicts | null): Painter {
  const [kind, ...rest] = mode.split(":");
  const name = rest.join(":");
  const resource = cluster.resource(name);
  if (kind === "use" && resource) return useOf(cluster, resource, theme);
  if (kind === "free" && resource) return freeOf(cluster, resource, theme);
  if (kind === "taints") return classes(cluster, "Taints", cluster.taints, theme, "no taints");
  if (kind === "status") return classes(cluster, "Status", cluster.status, theme, "unknown", STATUS);
  const label = cluster.labels.get(name);
  if (kind === "label" && label) return classes(cluster, name, label, theme, "without the label");
  if (verdicts && kind === "verdict") return verdictOf(cluster, verdicts, theme);
  if (verdicts && kind === "score") return scoreOf(cluster, verdicts, name, theme);
  const cpu = cluster.resource("cpu") ?? cluster.resources[0];
  return cpu ? useOf(cluster, cpu, theme) : classes(cluster, "Status", cluster.status, theme, "unknown", STATUS);
}

function scaleLegend(title: string, theme: Theme, [min, middle, max]: [string, string, string]): ScaleLegend {
  return { kind: "scale", title, min, middle, max, stops: stops(theme) };
}

function useOf(cluster: Cluster, resource: Resource, theme: Theme): Painter {
  const colours = scale(theme);
  const none = pixel(NONE[theme]);
  // Nodes that are not ready count for nothing, and have no colour among the others.
  const down = (row: number) => ["NotReady", "Failed"].includes(cluster.status.at(row));
  const value = (row: number) => (down(row) ? NaN : cluster.share(resource, row));
  return {
    value,
    colour(row) {
      const share = value(row);
      return share >= 0 ? colours[Math.min(255, Math.round(share * 255))] : none;
    },
    text(row) {
      const share = value(row);
      if (down(row)) return cluster.status.at(row);
      if (!(share >= 0)) return `no ${resource.name}`;
      const of = `${amount(resource.requested[row], resource.unit)} of ${amount(resource.allocatable[row], resource.unit)}`;
      return `${resource.name} ${percent(share)}: ${of}`;
    },
    legend: () => scaleLegend(`${resource.name} ${resource.devices ? "in use" : "requested"}, of what a node has`, theme, ["0 %", "50 %", "100 %"]),
  };
}

function freeOf(cluster: Cluster, resource: Resource, theme: Theme): Painter {
  const colours = scale(theme);
  const none = pixel(NONE[theme]);
  let most = 1;
  for (let row = 0; row < cluster.rows; row++) most = Math.max(most, resource.allocatable[row]);
  const value = (row: number) => (resource.allocatable[row] > 0 ? resource.allocatable[row] - resource.requested[row] : NaN);
  return {
    value,
    colour(row) {
      const free = value(row);
      return Number.isNaN(free) ? none : colours[Math.max(0, Math.min(255, Math.round((free / most) * 255)))];
    },
    text: (row) => (Number.isNaN(value(row)) ? `no ${resource.name}` : `${resource.name}: ${count(value(row))} of ${count(resource.allocatable[row])} free`),
    legend: () => scaleLegend(`${resource.name} free on a node`, theme, ["0", most > 1 ? count(most / 2) : "", count(most)]),
  };
}

function classes(cluster: Cluster, title: string, texts: Texts, theme: Theme, none: string, fixed: Record<string, string> = {}): Painter {
  const nodes = new Map<number, number>();
  for (let row = 0; row < cluster.rows; row++) if (cluster.names[row]) nodes.set(texts.index[row], (nodes.get(texts.index[row]) ?? 0) + 1);
  const order = [...nodes.keys()].filter((each) => each >= 0).sort((a, b) => nodes.get(b)! - nodes.get(a)! || a - b);
  // A value keeps its colour while nodes come and go: the first values have the colours.
  const colourOf = (place: number) => (place < 0 ? NONE[theme] : (fixed[texts.values[place]] ?? (place < MOST_CLASSES ? CLASSES[place] : OTHER[theme])));
  const pixels = Uint32Array.from(texts.values, (_, place) => pixel(colourOf(place)));
  const nothing = pixel(NONE[theme]);
  return {
    value: (row) => (texts.index[row] < 0 ? NaN : texts.index[row]),
    colour: (row) => pixels[texts.index[row]] ?? nothing,
    text: (row) => texts.at(row) || none,
    legend() {
      const own = order.filter((place) => place < MOST_CLASSES || texts.values[place] in fixed);
      const entries = own.map((place) => ({ label: texts.values[place], colour: colourOf(place), nodes: nodes.get(place)! }));
      const others = order.filter((place) => !own.includes(place));
      const sum = others.reduce((all, place) => all + nodes.get(place)!, 0);
      if (others.length) entries.push({ label: `${count(others.length)} other values`, colour: OTHER[theme], nodes: sum });
      if (nodes.has(-1)) entries.push({ label: none, colour: NONE[theme], nodes: nodes.get(-1)! });
      return { kind: "classes", title, entries };
    },
  };
}

function verdictOf(cluster: Cluster, verdicts: Verdicts, theme: Theme): Painter {
  const pixels = verdicts.reasons.map((_, at) => pixel(reasonColour(at, theme)));
  const [fits, none] = [pixel(FITS[theme]), pixel(NONE[theme])];
  const of = (row: number) => verdicts.verdict[row] ?? -2;
  return {
    value: (row) => (of(row) === -2 ? NaN : of(row) === -1 ? 1 : 0),
    colour: (row) => (of(row) === -1 ? fits : (pixels[of(row)] ?? none)),
    text(row) {
      const reason = verdicts.reasons[of(row)];
      return of(row) === -1 ? "the pod fits" : reason ? `${reason.text} (${reason.plugin})` : "not evaluated";
    },
    legend() {
      let [fit, unknown] = [0, 0];
      for (let row = 0; row < cluster.rows; row++) {
        if (!cluster.names[row]) continue;
        if (of(row) === -1) fit++;
        else if (of(row) === -2) unknown++;
      }
      const entries: ClassEntry[] = [{ label: "the pod fits", colour: FITS[theme], nodes: fit }];
      verdicts.reasons.forEach((each, at) => entries.push({ label: `${each.text} (${each.plugin})`, colour: reasonColour(at, theme), nodes: each.nodes }));
      if (unknown) entries.push({ label: "not evaluated", colour: NONE[theme], nodes: unknown });
      return { kind: "classes", title: `Verdicts for ${verdicts.pod}`, entries };
    },
  };
}

const REASONS = ["#ee8866", "#ddcc77", "#aa4499", "#4477aa", "#bb5533", "#997700", "#ffaabb", "#bbcc33"];

function reasonColour(at: number, theme: Theme): string {
  return REASONS[at] ?? OTHER[theme];
}

function scoreOf(cluster: Cluster, verdicts: Verdicts, plugin: string, theme: Theme): Painter {
  const columns = plugin ? verdicts.scores.filter((each) => each.plugin === plugin) : verdicts.scores;
  const fits = (row: number) => verdicts.verdict[row] === -1;
  const value = (row: number) => (fits(row) ? columns.reduce((sum, each) => sum + (each.scores[row] ?? 0), 0) : NaN);
  let [least, most] = [Infinity, -Infinity];
  for (let row = 0; row < cluster.rows; row++) {
    if (!fits(row)) continue;
    least = Math.min(least, value(row));
    most = Math.max(most, value(row));
  }
  if (least > most) [least, most] = [0, 0];
  const colours = scale(theme);
  const none = pixel(NONE[theme]);
  const title = plugin ? `Score of ${plugin}, times its weight ${columns[0]?.weight ?? ""}` : "Total score, weighted";
  return {
    value,
    colour: (row) => (fits(row) ? colours[most > least ? Math.round(((value(row) - least) / (most - least)) * 255) : 255] : none),
    text: (row) => (fits(row) ? `score ${count(value(row))}` : "the pod does not fit"),
    legend: () => scaleLegend(`${title}, for ${verdicts.pod} (grey: does not fit)`, theme, [count(least), count((least + most) / 2), count(most)]),
  };
}
