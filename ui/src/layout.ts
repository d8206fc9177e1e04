/** Places of nodes on the map: groups as blocks of cells, in shelves of equal height. Pure. */

import type { Cluster } from "./cluster";

export interface Block {
  name: string;
  /** Position and size in cells, without the head. */
  x: number;
  y: number;
  columns: number;
  lines: number;
  rows: Int32Array;
}

export interface Layout {
  /** Size in cells, heads of groups included. */
  width: number;
  height: number;
  /** Height of a head, in cells; 0 if there are too many groups for heads. */
  head: number;
  blocks: Block[];
  /** Position of each row in cells, x + y * width; -1 for a free row. */
  place: Int32Array;
  /** Row at each position; -1 for none. */
  rowAt: Int32Array;
}

export interface Box {
  width: number;
  height: number;
  /** Height of a group's head in pixels, and least width of a group, so that its name is legible. */
  head: number;
  least: number;
}

const LARGEST_CELL = 64;
const MOST_HEADS = 400;

export function layOut(cluster: Cluster, label: string, box: Box): Layout {
  const groups = grouped(cluster, label);
  const heads = groups.length <= MOST_HEADS && (groups.length > 1 || groups[0]?.name !== "");
  const fit = bestFit(groups.map((group) => group.rows.length), box, heads);
  return placed(groups, fit, cluster.rows);
}

interface Group {
  name: string;
  rows: Int32Array;
}

function grouped(cluster: Cluster, label: string): Group[] {
  const texts = cluster.labels.get(label);
  const found = new Map<string, number[]>();
  for (let row = 0; row < cluster.rows; row++) {
    if (!cluster.names[row]) continue;
    const name = texts ? texts.at(row) : "";
    const list = found.get(name);
    if (list) list.push(row);
    else found.set(name, [row]);
  }
  const compare = new Intl.Collator("en", { numeric: true }).compare;
  const names = [...found.keys()].sort((a, b) => (a === "" ? 1 : b === "" ? -1 : compare(a, b)));
  return names.map((name) => ({ name, rows: Int32Array.from(found.get(name)!) }));
}

interface Fit {
  /** Lines of cells of a group, and of a head; width of the whole in cells; least columns of a group; gap between groups. */
  lines: number;
  head: number;
  width: number;
  least: number;
  gap: number;
}

/** Finds the largest cells with which all groups fit, and the number of shelves for it. */
function bestFit(sizes: number[], box: Box, heads: boolean): Fit {
  for (let cell = LARGEST_CELL; cell > 1; cell = cell > 12 ? cell - 2 : cell > 6 ? cell - 0.5 : cell - 0.25) {
    const width = Math.floor(box.width / cell);
    const height = Math.floor(box.height / cell);
    const head = heads ? Math.ceil(box.head / cell) : 0;
    const least = heads ? Math.ceil(Math.min(box.least, box.width / 4) / cell) : 1;
    const gap = sizes.length > 1 ? Math.max(1, Math.round(8 / cell)) : 0;
    for (let shelves = 1; shelves <= Math.min(sizes.length, 200); shelves++) {
      const lines = Math.floor((height + gap) / shelves) - head - gap;
      if (lines < 1) break;
      if (shelvesFor(sizes, lines, width, least, gap) <= shelves) return { lines, head, width, least, gap };
    }
  }
  const columns = Math.max(1, Math.floor(box.width));
  return { lines: 4, head: 0, width: columns, least: 1, gap: 0 };
}

/** Number of shelves that the groups take, or Infinity if one is wider than all. */
function shelvesFor(sizes: number[], lines: number, width: number, least: number, gap: number): number {
  let shelves = 1;
  let x = 0;
  for (const size of sizes) {
    const columns = Math.max(Math.ceil(size / lines), least);
    if (columns > width) return Infinity;
    if (x + columns > width) {
      shelves++;
      x = 0;
    }
    x += columns + gap;
  }
  return shelves;
}

function placed(groups: Group[], fit: Fit, rows: number): Layout {
  const place = new Int32Array(rows).fill(-1);
  const blocks: Block[] = [];
  let [x, y, widest] = [0, 0, 1];
  for (const group of groups) {
    const columns = Math.min(fit.width, Math.max(Math.ceil(group.rows.length / fit.lines), fit.least));
    if (x > 0 && x + columns > fit.width) {
      x = 0;
      y += fit.head + fit.lines + fit.gap;
    }
    const lines = Math.max(fit.lines, Math.ceil(group.rows.length / columns));
    blocks.push({ name: group.name, x, y: y + fit.head, columns, lines, rows: group.rows });
    x += columns + fit.gap;
    widest = Math.max(widest, x - fit.gap);
  }
  // Blocks whose last lines are empty end earlier.
  let height = 1;
  for (const block of blocks) {
    block.lines = Math.ceil(block.rows.length / block.columns);
    height = Math.max(height, block.y + block.lines);
  }
  const rowAt = new Int32Array(widest * height).fill(-1);
  for (const block of blocks)
    block.rows.forEach((row, at) => {
      const cell = block.x + (at % block.columns) + (block.y + Math.floor(at / block.columns)) * widest;
      place[row] = cell;
      rowAt[cell] = row;
    });
  return { width: widest, height, head: fit.head, blocks, place, rowAt };
}
