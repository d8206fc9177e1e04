/** The map on a canvas. Each node is a pixel of a small image, which is drawn larger: a frame costs the same for any number of nodes. */

import type { NodePage, PodShare } from "./api";
import { workloadColour, type Painter, type Theme } from "./colours";
import type { Cluster } from "./cluster";
import { layOut, type Layout } from "./layout";
import { drawHeads, drawNode, labels, type Sheet } from "./sheet";

/** Bindings and preemptions are seen for this long. */
const FLASH = 900;
const MOST_FLASHES = 2000;
const LARGEST_CELL = 600;
/** Least width of a node, in CSS pixels, at which its pods are drawn, and most nodes on screen then. */
export const PODS_FROM = 40;
export const MOST_OPEN = 80;

interface Flash {
  row: number;
  until: number;
  kind: "bound" | "preempted";
}

export interface Hit {
  row: number;
  pod: PodShare | null;
}

export class ClusterMap {
  layout: Layout | null = null;
  /** Row under the pointer, and row with the keyboard's focus. */
  hover = -1;
  focus = -1;
  /** Row that belongs to the selected pod or page. */
  own = -1;
  calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  /** Pages of nodes that are drawn with their pods. */
  pages: ReadonlyMap<string, NodePage> = new Map();
  private cluster: Cluster | null = null;
  private painter: Painter | null = null;
  private label = "";
  private theme: Theme = "light";
  private readonly image = document.createElement("canvas");
  private pixels: ImageData | null = null;
  private words = new Uint32Array(0);
  private imageDirty = false;
  private flashes: Flash[] = [];
  private frame = 0;
  /** Device pixels of a cell, position of the layout, and the scale at which all of it is seen. */
  private cell = 1;
  private fit = 1;
  private x = 0;
  private y = 0;
  /** Called after each frame with the milliseconds it took. */
  onFrame: (milliseconds: number) => void = () => undefined;
  /** Called when other nodes are on screen, or they are of another size. */
  onView: () => void = () => undefined;

  constructor(readonly canvas: HTMLCanvasElement) {}

  // -- content -----------------------------------------------------------------------------------------

  show(cluster: Cluster, painter: Painter, label: string, theme: Theme): void {
    const other = cluster !== this.cluster || label !== this.label;
    Object.assign(this, { cluster, painter, label, theme });
    if (other || !this.layout || this.layout.place.length !== cluster.rows) this.arrange(other);
    this.paint();
  }

  /** Lays everything out anew, after nodes came or went, or the size changed. */
  arrange(reset: boolean): void {
    if (!this.cluster || !this.canvas.width) return;
    const ratio = devicePixelRatio;
    const box = { width: this.canvas.width / ratio, height: this.canvas.height / ratio, head: 18, least: 56 };
    this.layout = layOut(this.cluster, this.label, box);
    const { width, height } = this.layout;
    this.image.width = width;
    this.image.height = height;
    this.pixels = new ImageData(width, height);
    this.words = new Uint32Array(this.pixels.data.buffer);
    const exact = Math.min(this.canvas.width / width, this.canvas.height / height);
    const zoomed = this.cell > this.fit * 1.01;
    this.fit = exact >= 4 ? Math.floor(exact) : exact;
    if (reset || !zoomed) this.whole();
    this.paint();
  }

  /** Colours all nodes anew. */
  paint(): void {
    const { layout, painter } = this;
    if (!layout || !painter || !this.pixels) return;
    this.words.fill(0);
    for (let row = 0; row < layout.place.length; row++) if (layout.place[row] >= 0) this.words[layout.place[row]] = painter.colour(row);
    this.imageDirty = true;
    this.draw();
  }

  repaint(rows: readonly number[]): void {
    const { layout, painter } = this;
    if (!layout || !painter) return;
    for (const row of rows) if (layout.place[row] >= 0) this.words[layout.place[row]] = painter.colour(row);
    this.imageDirty = true;
    this.draw();
  }

  flash(row: number, kind: Flash["kind"]): void {
    if (this.flashes.length >= MOST_FLASHES) this.flashes.splice(0, MOST_FLASHES / 4);
    this.flashes.push({ row, kind, until: performance.now() + (kind === "preempted" ? 2 * FLASH : FLASH) });
    this.draw();
  }

  // -- view --------------------------------------------------------------------------------------------

  resize(width: number, height: number): void {
    const ratio = devicePixelRatio;
    const [w, h] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
    if (w === this.canvas.width && h === this.canvas.height) return;
    this.canvas.width = w;
    this.canvas.height = h;
    this.arrange(false);
    // The canvas is empty after a change of its size; the next frame would be too late.
    this.render();
  }

  whole(): void {
    Object.assign(this, { cell: this.fit, x: 0, y: 0 });
    this.moved();
  }

  get zoomed(): boolean {
    return this.cell > this.fit * 1.01;
  }

  /** Size of a cell in CSS pixels. */
  get size(): number {
    return this.cell / devicePixelRatio;
  }

  /** Zooms about a point in CSS pixels of the canvas. */
  zoom(factor: number, x = this.canvas.clientWidth / 2, y = this.canvas.clientHeight / 2): void {
    const ratio = devicePixelRatio;
    const cell = Math.max(this.fit, Math.min(Math.max(LARGEST_CELL * ratio, this.fit), this.cell * factor));
    const grown = cell / this.cell;
    this.x = x * ratio - (x * ratio - this.x) * grown;
    this.y = y * ratio - (y * ratio - this.y) * grown;
    this.cell = cell;
    this.moved();
  }

  pan(x: number, y: number): void {
    this.x += x * devicePixelRatio;
    this.y += y * devicePixelRatio;
    this.moved();
  }

  /** Brings a node into view, and zooms in if that is wanted. */
  reveal(row: number, size = 0): void {
    const place = this.layout?.place[row] ?? -1;
    if (!this.layout || place < 0) return;
    if (size * devicePixelRatio > this.cell) this.cell = size * devicePixelRatio;
    const [x, y] = [(place % this.layout.width) * this.cell, Math.floor(place / this.layout.width) * this.cell];
    if (size || this.x + x < 0 || this.x + x + this.cell > this.canvas.width) this.x = this.canvas.width / 2 - x - this.cell / 2;
    if (size || this.y + y < 0 || this.y + y + this.cell > this.canvas.height) this.y = this.canvas.height / 2 - y - this.cell / 2;
    this.moved();
  }

  private moved(): void {
    if (!this.layout) return;
    const inside = (at: number, length: number, room: number) => Math.min(0, Math.max(at, Math.min(0, room - length)));
    this.x = Math.round(inside(this.x, this.layout.width * this.cell, this.canvas.width));
    this.y = Math.round(inside(this.y, this.layout.height * this.cell, this.canvas.height));
    this.draw();
    this.onView();
  }

  /** Rows on screen, at most `most`. */
  visible(most: number): number[] {
    const found: number[] = [];
    if (!this.layout) return found;
    const { width, height, rowAt } = this.layout;
    const [left, top] = [Math.max(0, Math.floor(-this.x / this.cell)), Math.max(0, Math.floor(-this.y / this.cell))];
    const right = Math.min(width, Math.ceil((this.canvas.width - this.x) / this.cell));
    const bottom = Math.min(height, Math.ceil((this.canvas.height - this.y) / this.cell));
    for (let y = top; y < bottom; y++)
      for (let x = left; x < right; x++) {
        const row = rowAt[x + y * width];
        if (row >= 0) found.push(row);
        if (found.length >= most) return found;
      }
    return found;
  }

  /** Node, and pod on it, at a point in CSS pixels of the canvas. */
  hit(x: number, y: number): Hit {
    const none = { row: -1, pod: null };
    if (!this.layout) return none;
    const [atX, atY] = [(x * devicePixelRatio - this.x) / this.cell, (y * devicePixelRatio - this.y) / this.cell];
    const [column, line] = [Math.floor(atX), Math.floor(atY)];
    if (column < 0 || line < 0 || column >= this.layout.width || line >= this.layout.height) return none;
    const row = this.layout.rowAt[column + line * this.layout.width];
    if (row < 0) return none;
    const sheet = this.sheets.get(row);
    const [dx, dy] = [(atX - column) * this.cell, (atY - line) * this.cell];
    const pod = sheet?.find((each) => dx >= each.x && dx < each.x + each.width && dy >= each.y && dy < each.y + each.height)?.pod ?? null;
    return { row, pod };
  }

  /** Place of a node in CSS pixels of the canvas. */
  placeOf(row: number): { x: number; y: number; size: number } | null {
    const place = this.layout?.place[row] ?? -1;
    if (!this.layout || place < 0) return null;
    const ratio = devicePixelRatio;
    const [column, line] = [place % this.layout.width, Math.floor(place / this.layout.width)];
    return { x: (this.x + column * this.cell) / ratio, y: (this.y + line * this.cell) / ratio, size: this.cell / ratio };
  }

  /** Row of the nearest node in a direction. */
  neighbour(row: number, dx: number, dy: number): number {
    const layout = this.layout;
    if (!layout) return -1;
    const place = layout.place[row] ?? -1;
    if (place < 0) return layout.blocks[0]?.rows[0] ?? -1;
    let [x, y] = [(place % layout.width) + dx, Math.floor(place / layout.width) + dy];
    for (; x >= 0 && y >= 0 && x < layout.width && y < layout.height; x += dx, y += dy) {
      const found = layout.rowAt[x + y * layout.width];
      if (found >= 0) return found;
    }
    return row;
  }

  // -- drawing -----------------------------------------------------------------------------------------

  private sheets = new Map<number, Sheet>();

  draw(): void {
    this.frame ||= requestAnimationFrame(() => this.render());
  }

  close(): void {
    cancelAnimationFrame(this.frame);
    this.frame = -1;
  }

  private render(): void {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    const began = performance.now();
    const context = this.canvas.getContext("2d");
    const { layout } = this;
    if (!context || !layout || !this.pixels) return;
    if (this.imageDirty) this.image.getContext("2d")!.putImageData(this.pixels, 0, 0);
    this.imageDirty = false;
    const style = labels(this.theme);
    context.fillStyle = style.ground;
    context.fillRect(0, 0, this.canvas.width, this.canvas.height);
    context.imageSmoothingEnabled = this.cell < 1;
    context.drawImage(this.image, this.x, this.y, layout.width * this.cell, layout.height * this.cell);
    if (this.cell >= 4) this.lines(context, layout, style.ground);
    drawHeads(context, layout, this.cell, this.x, this.y, style, devicePixelRatio);
    this.open(context, layout);
    this.marks(context, style.ink);
    this.flare(context, began, style);
    this.onFrame(performance.now() - began);
  }

  /** Lines between nodes: all blocks lie on one grid, so that lines go through the whole. */
  private lines(context: CanvasRenderingContext2D, layout: Layout, ground: string): void {
    const thick = this.cell >= 24 ? 3 : this.cell >= 10 ? 2 : 1;
    context.fillStyle = ground;
    const first = (at: number) => Math.max(0, Math.floor(-at / this.cell));
    for (let x = first(this.x); x <= layout.width; x++) {
      const at = Math.round(this.x + x * this.cell);
      if (at > this.canvas.width) break;
      context.fillRect(at, 0, thick, this.canvas.height);
    }
    for (let y = first(this.y); y <= layout.height; y++) {
      const at = Math.round(this.y + y * this.cell);
      if (at > this.canvas.height) break;
      context.fillRect(0, at, this.canvas.width, thick);
    }
  }

  /** Nodes with their pods, where cells are large and not too many. */
  private open(context: CanvasRenderingContext2D, layout: Layout): void {
    this.sheets = new Map();
    if (this.size < PODS_FROM || !this.cluster) return;
    const rows = this.visible(MOST_OPEN + 1);
    if (rows.length > MOST_OPEN) return;
    for (const row of rows) {
      const place = layout.place[row];
      const [x, y] = [this.x + (place % layout.width) * this.cell, this.y + Math.floor(place / layout.width) * this.cell];
      const page = this.pages.get(this.cluster.names[row]);
      this.sheets.set(row, drawNode(context, this.cluster, row, page, { x, y, size: this.cell, ratio: devicePixelRatio }, this.theme, workloadColour));
    }
  }

  private marks(context: CanvasRenderingContext2D, ink: string): void {
    const ratio = devicePixelRatio;
    for (const [row, width] of [[this.own, 3], [this.hover, 2], [this.focus, 3]]) {
      const at = row >= 0 ? this.placeOf(row) : null;
      if (!at) continue;
      context.strokeStyle = ink;
      context.lineWidth = width * ratio;
      const grown = Math.max(0, 6 - at.size) / 2;
      context.strokeRect((at.x - grown) * ratio, (at.y - grown) * ratio, (at.size + 2 * grown) * ratio + 1, (at.size + 2 * grown) * ratio + 1);
    }
  }

  /** Bindings and preemptions as frames that fade, or stay for a moment where motion is not wanted. */
  private flare(context: CanvasRenderingContext2D, now: number, style: { bound: string; preempted: string }): void {
    if (!this.flashes.length || !this.layout) return;
    this.flashes = this.flashes.filter((each) => each.until > now);
    const ratio = devicePixelRatio;
    const thick = Math.max(1, Math.min(4 * ratio, this.cell / 4));
    for (const each of this.flashes) {
      const at = this.placeOf(each.row);
      if (!at) continue;
      const life = (each.until - now) / (each.kind === "preempted" ? 2 * FLASH : FLASH);
      context.globalAlpha = this.calm ? 1 : Math.min(1, life * 1.5);
      context.strokeStyle = style[each.kind];
      context.lineWidth = each.kind === "preempted" ? thick * 1.6 : thick;
      const [x, y, size] = [at.x * ratio, at.y * ratio, Math.max(at.size * ratio, 3)];
      context.strokeRect(x + thick / 2, y + thick / 2, size - thick / 2, size - thick / 2);
    }
    context.globalAlpha = 1;
    if (!this.flashes.length) return;
    if (this.calm) setTimeout(() => this.draw(), FLASH);
    else this.draw();
  }
}
