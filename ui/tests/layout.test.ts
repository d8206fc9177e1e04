import { expect, test } from "vitest";
import { Cluster } from "../src/cluster";
import { layOut, neighbour, rowAt, type Layout } from "../src/layout";

function cluster(nodes: number, groupOf: (at: number) => number, free: number[] = []): Cluster {
  const names = Array.from({ length: nodes }, (_, at) => (free.includes(at) ? "" : `n${at}`));
  const index = names.map((_, at) => groupOf(at));
  const values = Array.from({ length: Math.max(0, ...index) + 1 }, (_, at) => `g${at}`);
  return new Cluster({ names, resources: [], labels: [{ key: "group", values, index }], taints: { values: [], index: names.map(() => -1) }, status: { values: [], index: names.map(() => -1) } });
}

const BOX = { width: 1200, height: 700, head: 18, least: 52, gap: 10 };

function check(layout: Layout, nodes: number): void {
  const pixels = [...layout.pixel].filter((each) => each >= 0);
  expect(new Set(pixels).size).toBe(nodes);
  expect(Math.max(...pixels)).toBeLessThan(layout.imageWidth * layout.imageHeight);
  layout.x.forEach((x, row) => x >= 0 && expect(rowAt(layout, x + 0.5, layout.y[row] + 0.5)).toBe(row));
}

test.each([
  ["one node", 1, 1],
  ["three zones", 5000, 3],
  ["racks", 5000, 125],
  ["as many groups as nodes", 600, 600],
  ["very many nodes", 50_000, 3],
])("%s: every node has a place of its own, and all of it fits", (_, nodes, groups) => {
  const layout = layOut(cluster(nodes, (at) => at % groups), "group", BOX);
  check(layout, nodes);
  const cell = Math.min(BOX.width / layout.width, BOX.height / layout.height);
  expect(cell).toBeGreaterThan(nodes > 10_000 ? 2 : nodes > 1000 ? 6 : 12);
});

test("groups do not overlap, and lie in the order of their names", () => {
  const layout = layOut(cluster(400, (at) => at % 12), "group", BOX);
  expect(layout.blocks.map((block) => block.name).slice(0, 4)).toEqual(["g0", "g1", "g2", "g3"]);
  expect(layout.blocks[11].name).toBe("g11");
  for (const [at, block] of layout.blocks.entries())
    for (const other of layout.blocks.slice(at + 1)) expect(block.x + block.columns <= other.x || other.x + other.columns <= block.x || block.y + block.lines < other.y || other.y + other.lines < block.y).toBe(true);
});

test("free rows have no place, and nodes without the label come last", () => {
  const layout = layOut(cluster(10, (at) => (at < 5 ? 0 : -1), [1, 6]), "group", BOX);
  check(layout, 8);
  expect([layout.pixel[1], layout.pixel[6]]).toEqual([-1, -1]);
  expect(layout.blocks.map((block) => block.name)).toEqual(["g0", ""]);
});

test("a box without room still has a place for all", () => {
  check(layOut(cluster(3000, (at) => at % 700), "group", { width: 40, height: 10, head: 18, least: 52, gap: 10 }), 3000);
});

test("arrow keys go to the nearest node, over gaps between groups, and stop at the edge", () => {
  const layout = layOut(cluster(40, (at) => at % 2), "group", BOX);
  const [first, second] = layout.blocks;
  const last = first.rows[first.columns - 1];
  expect(neighbour(layout, first.rows[0], 1, 0)).toBe(first.rows[1]);
  expect(neighbour(layout, last, 1, 0)).toBe(second.rows[0]);
  expect(neighbour(layout, first.rows[0], 0, 1)).toBe(first.rows[first.columns]);
  expect(neighbour(layout, first.rows[0], 0, -1)).toBe(first.rows[0]);
  expect(neighbour(layout, -1, 1, 0)).toBe(first.rows[0]);
});
