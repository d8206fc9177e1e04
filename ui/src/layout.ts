/** Places of nodes on the map: groups as blocks of cells, in shelves of equal height. Pure. */

import type { Cluster } from "./cluster";

export interface Block {
  name: string;
  /** Place of the first cell, in cells from the upper left corner; a head lies above. */
  x: number;
  y: number;
  columns: number;
  lines: number;
  /** Position of the first cell in the image, in which blocks follow one another without gaps. */
  left: number;
  rows: Int32Array;
}

export interface Layout {
  /** Size in cells, heads and gaps included. */
  width: number;
  height: number;
  /** Height of a head, in cells; 0 if groups have none. */
  head: number;
  blocks: Block[];
  /** Size of the image, which has one pixel for each cell, and the pixel of each row; -1 for a free row. */
  imageWidth: number;
  imageHeight: number;
  pixel: Int32Array;
  /** Place of each row in cells; NaN for a free row. */
  x: Float32Array;
  y: Float32Array;
}

export interface Box {
  width: number;
  height: number;
  /** Height of a group's head, least width of a group, so that its name is legible, and gap between groups: in pixels. */
  head: number;
  least: number;
  gap: number;
}

const LARGEST_CELL = 180;
/** Most groups that are told apart; nodes of more groups are ordered by group, in one block. */
const MOST_GROUPS = 400;

export function layOut(cluster: Cluster, label: string, box: Box): Layout {
  let groups = grouped(cluster, label);
  if (groups.length > MOST_GROUPS) groups = [{ name: "", rows: Int32Array.from(groups.flatMap((group) => [...group.rows])) }];
  const heads = groups.length > 1 || (groups[0]?.name ?? "") !== "";
  const frame = { ...box, head: heads ? box.head : 0, least: heads ? Math.min(box.least, box.width / 4) : 0 };
  const fit = bestFit(groups.map((group) => group.rows.length), frame);
  return placed(groups, fit, frame, cluster.rows);
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
  /** Size of a cell in pixels, and lines of cells of a shelf. */
  cell: number;
  lines: number;
}

/** Finds the largest cells with which all groups fit, and the height of the shelves. */
function bestFit(sizes: number[], box: Box): Fit {
  for (let cell = LARGEST_CELL; cell > 1; cell -= cell > 24 ? 2 : cell > 6 ? 0.5 : 0.25) {
    for (let shelves = 1; shelves <= Math.min(sizes.length, 200); shelves++) {
      const lines = Math.floor(((box.height + box.gap) / shelves - box.head - box.gap) / cell);
      if (lines < 1) break;
      if (shelvesFor(sizes, lines, cell, box) <= shelves) return { cell, lines };
    }
  }
  return { cell: 1, lines: 4 };
}

function columnsOf(size: number, fit: Fit, box: Box): number {
  const most = Math.max(1, Math.floor(box.width / fit.cell));
  return Math.min(most, Math.max(Math.ceil(size / fit.lines), Math.min(size, Math.ceil(box.least / fit.cell)), 1));
}

/** Width of a block in pixels, at least that of its head. */
function widthOf(columns: number, fit: Fit, box: Box): number {
  return Math.max(columns * fit.cell, box.least);
}

/** Number of shelves that the groups take, or Infinity if one has more lines than a shelf. */
function shelvesFor(sizes: number[], lines: number, cell: number, box: Box): number {
  const fit = { cell, lines };
  let shelves = 1;
  let x = 0;
  for (const size of sizes) {
    const columns = columnsOf(size, fit, box);
    if (columns * lines < size) return Infinity;
    const width = widthOf(columns, fit, box);
    if (x > 0 && x + width > box.width) {
      shelves++;
      x = 0;
    }
    x += width + box.gap;
  }
  return shelves;
}

function placed(groups: Group[], fit: Fit, box: Box, rows: number): Layout {
  const [gap, head, room] = [box.gap / fit.cell, box.head / fit.cell, box.width / fit.cell];
  const blocks: Block[] = [];
  let [x, y, shelf, left, width] = [0, 0, 0, 0, 1];
  for (const group of groups) {
    const columns = columnsOf(group.rows.length, fit, box);
    const lines = Math.ceil(group.rows.length / columns);
    const wide = widthOf(columns, fit, box) / fit.cell;
    if (x > 0 && x + wide > room + 1e-6) {
      y += head + shelf + gap;
      [x, shelf] = [0, 0];
    }
    blocks.push({ name: group.name, x, y: y + head, columns, lines, left, rows: group.rows });
    shelf = Math.max(shelf, lines);
    left += columns;
    x += wide + gap;
    width = Math.max(width, x - gap);
  }
  return filled(blocks, { width, height: Math.max(1, y + head + shelf), head }, rows);
}

function filled(blocks: Block[], size: { width: number; height: number; head: number }, rows: number): Layout {
  const imageWidth = blocks.reduce((sum, block) => sum + block.columns, 0) || 1;
  const imageHeight = blocks.reduce((most, block) => Math.max(most, block.lines), 1);
  const pixel = new Int32Array(rows).fill(-1);
  const [x, y] = [new Float32Array(rows).fill(NaN), new Float32Array(rows).fill(NaN)];
  for (const block of blocks)
    block.rows.forEach((row, at) => {
      const [column, line] = [at % block.columns, Math.floor(at / block.columns)];
      pixel[row] = block.left + column + line * imageWidth;
      x[row] = block.x + column;
      y[row] = block.y + line;
    });
  return { ...size, blocks, imageWidth, imageHeight, pixel, x, y };
}

/** Row at a place in cells; -1 for none. */
export function rowAt(layout: Layout, x: number, y: number): number {
  for (const block of layout.blocks) {
    const [column, line] = [Math.floor(x - block.x), Math.floor(y - block.y)];
    if (column >= 0 && line >= 0 && column < block.columns && line < block.lines) return block.rows[column + line * block.columns] ?? -1;
  }
  return -1;
}

/** Row of the nearest node in a direction; the row itself if there is none. */
export function neighbour(layout: Layout, row: number, dx: number, dy: number): number {
  if (!(layout.x[row] >= 0)) return layout.blocks[0]?.rows[0] ?? -1;
  let [best, least] = [row, Infinity];
  for (let other = 0; other < layout.x.length; other++) {
    const [x, y] = [layout.x[other] - layout.x[row], layout.y[other] - layout.y[row]];
    const [along, aside] = [x * dx + y * dy, Math.abs(x * dy) + Math.abs(y * dx)];
    // Whoever goes right stays on the line; a node that is hardly aside is nearer than one that is.
    const distance = along + aside * 3;
    if (along > 0.5 && distance < least) [best, least] = [other, distance];
  }
  return best;
}
