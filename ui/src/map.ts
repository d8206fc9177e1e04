/** The map on a canvas. Each node is a pixel of a small image, which is drawn larger: a frame costs the same for any number of nodes. */

import type { NodePage, PodShare } from "./api";
import { workloadColour, type Painter, type Theme } from "./colours";
import type { Cluster } from "./cluster";
import { layOut, neighbour, rowAt, type Layout } from "./layout";
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

/** Size of text, relative to that of an ordinary screen. */
function textSize(): number {
  return parseFloat(getComputedStyle(document.documentElement).fontSize) / 14;
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
  /** Called when other nodes are on screen, or they are of another size. */
  onView: () => void = () => undefined;

  constructor(readonly canvas: HTMLCanvasElement) {}

  // -- content -----------------------------------------------------------------------------------------

  show(cluster: Cluster, painter: Painter, label: string, theme: Theme): void {
    const other = cluster !== this.cluster || label !== this.label;
    Object.assign(this, { cluster, painter, label, theme });
    if (other || !this.layout || this.layout.pixel.length !== cluster.rows) this.arrange(other);
    this.paint();
  }

  /** Lays everything out anew, after nodes came or went, or the size changed. */
  arrange(reset: boolean): void {
    if (!this.cluster || !this.canvas.width) return;
    const ratio = devicePixelRatio;
    const [space, size] = [this.canvas.width / ratio, textSize()];
    const box = { width: space, height: this.canvas.height / ratio, head: 18 * size, least: 52 * size, gap: 10 };
    this.layout = layOut(this.cluster, this.label, box);
    const { width, height, imageWidth, imageHeight } = this.layout;
    this.image.width = imageWidth;
    this.image.height = imageHeight;
    this.pixels = new ImageData(imageWidth, imageHeight);
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
    for (let row = 0; row < layout.pixel.length; row++) if (layout.pixel[row] >= 0) this.words[layout.pixel[row]] = painter.colour(row);
    this.imageDirty = true;
    this.draw();
  }

  repaint(rows: readonly number[]): void {
    const { layout, painter } = this;
    if (!layout || !painter) return;
    for (const row of rows) if (layout.pixel[row] >= 0) this.words[layout.pixel[row]] = painter.colour(row);
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
    if (!this.layout || !(this.layout.x[row] >= 0)) return;
    if (size * devicePixelRatio > this.cell) this.cell = size * devicePixelRatio;
    const [x, y] = [this.layout.x[row] * this.cell, this.layout.y[row] * this.cell];
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
    const { layout, cell } = this;
    if (!layout) return found;
    const [left, top] = [-this.x / cell, -this.y / cell];
    const [right, bottom] = [left + this.canvas.width / cell, top + this.canvas.height / cell];
    for (let row = 0; row < layout.x.length && found.length < most; row++) if (layout.x[row] > left - 1 && layout.x[row] < right && layout.y[row] > top - 1 && layout.y[row] < bottom) found.push(row);
    return found;
  }

  /** Node, and pod on it, at a point in CSS pixels of the canvas. */
  hit(x: number, y: number): Hit {
    const { layout, cell } = this;
    if (!layout) return { row: -1, pod: null };
    const [atX, atY] = [(x * devicePixelRatio - this.x) / cell, (y * devicePixelRatio - this.y) / cell];
    const row = rowAt(layout, atX, atY);
    const [dx, dy] = [(atX - layout.x[row]) * cell, (atY - layout.y[row]) * cell];
    const box = this.sheets.get(row)?.find((each) => dx >= each.x && dx < each.x + each.width && dy >= each.y && dy < each.y + each.height);
    return { row, pod: box?.pod ?? null };
  }

  /** Place of a node in CSS pixels of the canvas. */
  placeOf(row: number): { x: number; y: number; size: number } | null {
    const { layout, cell } = this;
    if (!layout || !(layout.x[row] >= 0)) return null;
    const ratio = devicePixelRatio;
    return { x: (this.x + layout.x[row] * cell) / ratio, y: (this.y + layout.y[row] * cell) / ratio, size: cell / ratio };
  }

  /** Row of the nearest node in a direction. */
  neighbour(row: number, dx: number, dy: number): number {
    return this.layout ? neighbour(this.layout, row, dx, dy) : -1;
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
    const context = this.canvas.getContext("2d");
    const { layout } = this;
    if (!context || !layout || !this.pixels) return;
    if (this.imageDirty) this.image.getContext("2d")!.putImageData(this.pixels, 0, 0);
    this.imageDirty = false;
    const style = labels(this.theme);
    context.fillStyle = style.ground;
    context.fillRect(0, 0, this.canvas.width, this.canvas.height);
    this.blocks(context, layout, style.ground);
    drawHeads(context, layout, this.cell, this.x, this.y, style, devicePixelRatio * textSize());
    this.open(context, layout);
    this.marks(context, style.ink);
    this.flare(context, performance.now(), style);
  }

  /** Blocks of nodes, with lines between the nodes where these are large enough. */
  private blocks(context: CanvasRenderingContext2D, layout: Layout, ground: string): void {
    const { cell } = this;
    const thick = cell >= 24 ? 3 : cell >= 10 ? 2 : 1;
    context.imageSmoothingEnabled = cell < 1;
    context.fillStyle = ground;
    for (const block of layout.blocks) {
      const [x, y] = [Math.round(this.x + block.x * cell), Math.round(this.y + block.y * cell)];
      const [width, height] = [block.columns * cell, block.lines * cell];
      if (x > this.canvas.width || y > this.canvas.height || x + width < 0 || y + height < 0) continue;
      context.drawImage(this.image, block.left, 0, block.columns, block.lines, x, y, width, height);
      if (cell < 4) continue;
      const first = (at: number) => Math.max(0, Math.floor(-at / cell));
      for (let column = first(x); column <= block.columns && x + column * cell < this.canvas.width; column++) context.fillRect(Math.round(x + column * cell), y, thick, height);
      for (let line = first(y); line <= block.lines && y + line * cell < this.canvas.height; line++) context.fillRect(x, Math.round(y + line * cell), width, thick);
    }
  }

  /** Nodes with their pods, where cells are large and not too many. */
  private open(context: CanvasRenderingContext2D, layout: Layout): void {
    this.sheets = new Map();
    if (this.size < PODS_FROM || !this.cluster) return;
    const rows = this.visible(MOST_OPEN + 1);
    if (rows.length > MOST_OPEN) return;
    for (const row of rows) {
      const [x, y] = [this.x + layout.x[row] * this.cell, this.y + layout.y[row] * this.cell];
      const page = this.pages.get(this.cluster.names[row]);
      this.sheets.set(row, drawNode(context, this.cluster, row, page, { x, y, size: this.cell, ratio: devicePixelRatio * textSize() }, this.theme, workloadColour));
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
