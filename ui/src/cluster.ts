/** Nodes of a cluster as typed arrays, kept up to date by increments. A row is the position of a node; a free row has no name. */

import type { Change, NodeChange, NodeColumns, TextColumn } from "./api";
import { unitOf, type Unit } from "./format";

/** Texts by row: positions in `values`; -1 for none. */
export class Texts {
  values: string[];
  index: Int32Array;
  private readonly places = new Map<string, number>();

  constructor(column: { values: string[]; index: number[] }) {
    this.values = [...column.values];
    this.index = Int32Array.from(column.index);
    this.values.forEach((value, place) => this.places.set(value, place));
  }

  at(row: number): string {
    return this.values[this.index[row]] ?? "";
  }

  set(row: number, value: string | undefined): void {
    if (value === undefined) {
      this.index[row] = -1;
      return;
    }
    let place = this.places.get(value);
    if (place === undefined) {
      place = this.values.push(value) - 1;
      this.places.set(value, place);
    }
    this.index[row] = place;
  }

  grow(rows: number): void {
    const before = this.index.length;
    this.index = longer(this.index, new Int32Array(rows));
    this.index.fill(-1, before);
  }
}

export interface Resource {
  name: string;
  unit: Unit;
  devices: boolean;
  allocatable: Float64Array;
  requested: Float64Array;
}

/** Effect of a change: whether nodes came, went or changed, and the rows whose amounts are others now. */
export interface Effect {
  nodes: boolean;
  rows: number[];
}

export class Cluster {
  readonly names: string[];
  readonly resources: Resource[];
  readonly labels = new Map<string, Texts>();
  readonly taints: Texts;
  readonly status: Texts;
  private room: number;

  constructor(columns: NodeColumns) {
    this.names = [...columns.names];
    this.room = this.names.length;
    this.resources = columns.resources.map((each) => ({
      name: each.name,
      unit: each.unit,
      devices: each.devices,
      allocatable: Float64Array.from(each.allocatable),
      requested: Float64Array.from(each.requested),
    }));
    for (const label of columns.labels) this.labels.set(label.key, new Texts(label));
    this.taints = new Texts(columns.taints satisfies TextColumn);
    this.status = new Texts(columns.status);
  }

  get rows(): number {
    return this.names.length;
  }

  /** Number of nodes, without free rows. */
  get size(): number {
    let nodes = 0;
    for (const name of this.names) if (name) nodes++;
    return nodes;
  }

  resource(name: string): Resource | undefined {
    return this.resources.find((each) => each.name === name);
  }

  row(name: string): number {
    return name ? this.names.indexOf(name) : -1;
  }

  /** Share of a resource that is requested, 0 to 1 or more; NaN for a node that has none of it. */
  share(resource: Resource, row: number): number {
    const all = resource.allocatable[row];
    return all > 0 ? resource.requested[row] / all : NaN;
  }

  apply(change: Change): Effect {
    for (const node of change.nodes) this.put(node);
    for (const [name, amounts] of Object.entries(change.requested)) {
      const column = this.resource(name) ?? this.add(name);
      change.rows.forEach((row, at) => {
        if (row < column.requested.length) column.requested[row] = amounts[at];
      });
    }
    return { nodes: change.nodes.length > 0, rows: change.rows };
  }

  private put(node: NodeChange): void {
    if (node.row >= this.room) this.grow(node.row + 1);
    while (this.names.length <= node.row) this.names.push("");
    this.names[node.row] = node.name;
    for (const name of Object.keys(node.allocatable)) if (!this.resource(name)) this.add(name);
    for (const column of this.resources) {
      column.allocatable[node.row] = node.allocatable[column.name] ?? 0;
      column.requested[node.row] = node.requested[column.name] ?? 0;
    }
    for (const [key, texts] of this.labels) texts.set(node.row, node.labels[key]);
    this.taints.set(node.row, node.taints || undefined);
    this.status.set(node.row, node.status || undefined);
  }

  private add(name: string): Resource {
    const column: Resource = {
      name,
      unit: unitOf(name),
      devices: false,
      allocatable: new Float64Array(this.room),
      requested: new Float64Array(this.room),
    };
    this.resources.push(column);
    return column;
  }

  private grow(rows: number): void {
    this.room = Math.max(rows, Math.ceil(this.room * 1.5));
    for (const column of this.resources) {
      column.allocatable = longer(column.allocatable, new Float64Array(this.room));
      column.requested = longer(column.requested, new Float64Array(this.room));
    }
    for (const texts of [...this.labels.values(), this.taints, this.status]) texts.grow(this.room);
  }
}

function longer<T extends Float64Array | Int32Array>(old: T, fresh: T): T {
  fresh.set(old);
  return fresh;
}
