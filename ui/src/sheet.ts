/** Drawing of parts of the map: heads of groups, and nodes with their pods. */

import type { NodePage, PodShare } from "./api";
import type { Cluster } from "./cluster";
import type { Theme } from "./colours";
import type { Layout } from "./layout";

export interface Style {
  ground: string;
  ink: string;
  dim: string;
  node: string;
  bound: string;
  preempted: string;
}

const STYLES: Record<Theme, Style> = {
  light: { ground: "#ffffff", ink: "#14181f", dim: "#545c68", node: "#eceff3", bound: "#0b63ce", preempted: "#d1242f" },
  dark: { ground: "#12161c", ink: "#ffffff", dim: "#aab2bd", node: "#232a33", bound: "#ffffff", preempted: "#ff6b5e" },
};
const FONT = "system-ui, sans-serif";

export function labels(theme: Theme): Style {
  return STYLES[theme];
}

const shortened = new Map<string, string>();

/** Text as long as there is room for; `tail` is the part that stays at its end, as names of pods differ there. */
export function fitting(context: CanvasRenderingContext2D, text: string, room: number, tail = 0): string {
  const key = `${context.font} ${Math.round(room)} ${tail} ${text}`;
  let found = shortened.get(key);
  if (found === undefined) {
    found = text;
    for (let length = text.length - 1; found && context.measureText(found).width > room; length--) {
      const end = Math.floor(length * tail);
      found = length > 0 ? `${text.slice(0, length - end)}…${end ? text.slice(-end) : ""}` : "";
    }
    if (shortened.size > 5000) shortened.clear();
    shortened.set(key, found);
  }
  return found;
}

export function drawHeads(context: CanvasRenderingContext2D, layout: Layout, cell: number, x: number, y: number, style: Style, ratio: number): void {
  if (!layout.head) return;
  const { width, height } = context.canvas;
  context.textBaseline = "alphabetic";
  for (const block of layout.blocks) {
    const [left, right, top] = [x + block.x * cell, x + (block.x + block.columns) * cell, y + block.y * cell];
    if (right < 0 || left > width || top < 0 || top - layout.head * cell > height) continue;
    const shown = Math.max(left, 0);
    context.font = `600 ${12 * ratio}px ${FONT}`;
    context.fillStyle = style.dim;
    const name = fitting(context, block.name || "(none)", right - shown - 2 * ratio);
    context.fillText(name, shown + ratio, top - 4 * ratio);
    const room = right - shown - context.measureText(name).width - 8 * ratio;
    context.font = `${11 * ratio}px ${FONT}`;
    const number = String(block.rows.length);
    if (room > context.measureText(number).width && block.name) context.fillText(number, right - room, top - 4 * ratio);
  }
}

export interface PodBox {
  x: number;
  y: number;
  width: number;
  height: number;
  pod: PodShare;
}

/** Places of pods within a node, in device pixels. */
export type Sheet = PodBox[];

interface Frame {
  x: number;
  y: number;
  size: number;
  ratio: number;
}

/** Draws a node with its pods to their share, from below, and returns where they are. Without a page its colour stays. */
export function drawNode(
  context: CanvasRenderingContext2D,
  cluster: Cluster,
  row: number,
  page: NodePage | undefined,
  frame: Frame,
  theme: Theme,
  colour: (workload: string) => string,
): Sheet {
  const { x, y, size, ratio } = frame;
  const style = STYLES[theme];
  const edge = 3 * ratio;
  const head = size >= 70 * ratio ? 17 * ratio : 0;
  let sheet: Sheet = [];
  if (page) {
    // The colour of the map stays as the frame of the node.
    const rim = Math.max(3, Math.min(6 * ratio, size / 16));
    const inner = { x: edge + rim, y: edge + rim + head, width: size - 2 * rim - edge, height: size - 2 * rim - edge - head };
    context.fillStyle = style.node;
    context.fillRect(x + edge + rim, y + edge + rim, inner.width, size - 2 * rim - edge);
    sheet = podBoxes(page, inner);
    for (const box of sheet) {
      context.fillStyle = colour(box.pod.workload || box.pod.name);
      const [w, h] = [Math.max(1, box.width - ratio), Math.max(1, box.height - ratio)];
      context.fillRect(x + box.x, y + box.y, w, h);
      if (w > 46 * ratio && h > 14 * ratio) {
        context.font = `${11 * ratio}px ${FONT}`;
        context.fillStyle = "#0b0e12";
        context.fillText(fitting(context, box.pod.name, w - 6 * ratio, 0.6), x + box.x + 3 * ratio, y + box.y + 12 * ratio);
      }
    }
    if (head) {
      context.font = `600 ${12 * ratio}px ${FONT}`;
      context.fillStyle = style.ink;
      context.fillText(fitting(context, cluster.names[row], inner.width - 8 * ratio), x + inner.x + 4 * ratio, y + inner.y - 4 * ratio);
    }
  }
  return sheet;
}

/** Pods as rectangles whose areas are their shares of the scarcest resource that they ask for. */
function podBoxes(page: NodePage, room: { x: number; y: number; width: number; height: number }): Sheet {
  const weighed = page.pods.map((pod) => ({ pod, share: shareOf(pod, page) }));
  const sum = weighed.reduce((all, each) => all + each.share, 0);
  if (!sum) return [];
  const height = room.height * Math.min(1, sum);
  const found: Sheet = [];
  split(weighed, sum, room.x, room.y + room.height - height, room.width, height, found);
  return found;
}

/** A pod without requests is still seen, as a thin line. */
const LEAST_SHARE = 0.004;

function shareOf(pod: PodShare, page: NodePage): number {
  let share = LEAST_SHARE;
  for (const [name, asked] of Object.entries(pod.requests)) {
    const all = page.allocatable[name];
    if (all > 0) share = Math.max(share, asked / all);
  }
  return share;
}

/** Halves by weight, along the longer side, until one is left. */
function split(items: { pod: PodShare; share: number }[], sum: number, x: number, y: number, width: number, height: number, found: Sheet): void {
  if (items.length <= 1) {
    for (const { pod } of items) found.push({ x, y, width, height, pod });
    return;
  }
  let [at, half] = [0, 0];
  while (at < items.length - 1 && (at === 0 || half + items[at].share <= sum / 2)) half += items[at++].share;
  const part = half / sum;
  if (width > height) {
    split(items.slice(0, at), half, x, y, width * part, height, found);
    split(items.slice(at), sum - half, x + width * part, y, width * (1 - part), height, found);
  } else {
    split(items.slice(0, at), half, x, y, width, height * part, found);
    split(items.slice(at), sum - half, x, y + height * part, width, height * (1 - part), found);
  }
}
