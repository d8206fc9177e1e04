import { expect, test } from "vitest";
import type { Change, NodeColumns } from "../src/api";
import { Cluster } from "../src/cluster";

const columns = (): NodeColumns => ({
  names: ["a", "b"],
  resources: [{ name: "cpu", unit: "millicores", devices: false, allocatable: [1000, 2000], requested: [0, 500] }],
  labels: [{ key: "zone", values: ["z1", "z2"], index: [0, 1] }],
  taints: { values: ["spot:NoSchedule"], index: [-1, 0] },
  status: { values: ["Ready"], index: [0, 0] },
});

const change = (parts: Partial<Change>): Change => ({ version: 2, at: 1, rows: [], requested: {}, nodes: [], bound: [], boundCount: 0, preempted: [], preemptedCount: 0, sample: null, ...parts });

const node = (row: number, name: string) => ({ row, name, allocatable: { cpu: 4000, gpu: 8 }, requested: { cpu: 1000, gpu: 2 }, labels: { zone: "z3" }, taints: "", status: "Ready" });

test("a state is shown as it is", () => {
  const cluster = new Cluster(columns());
  expect(cluster.size).toBe(2);
  expect(cluster.share(cluster.resource("cpu")!, 1)).toBe(0.25);
  expect([cluster.labels.get("zone")!.at(1), cluster.taints.at(0), cluster.taints.at(1)]).toEqual(["z2", "", "spot:NoSchedule"]);
});

test("amounts of rows follow a change, in the order of its rows", () => {
  const cluster = new Cluster(columns());
  const effect = cluster.apply(change({ rows: [1, 0], requested: { cpu: [1500, 250] } }));
  expect([...cluster.resource("cpu")!.requested]).toEqual([250, 1500]);
  expect(effect).toEqual({ nodes: false, rows: [1, 0] });
});

test("a new node in a far row brings free rows, a label's value and a resource with it", () => {
  const cluster = new Cluster(columns());
  expect(cluster.apply(change({ nodes: [node(5, "f")] })).nodes).toBe(true);
  expect(cluster.names).toEqual(["a", "b", "", "", "", "f"]);
  expect(cluster.size).toBe(3);
  expect(cluster.labels.get("zone")!.at(5)).toBe("z3");
  expect(cluster.labels.get("zone")!.at(3)).toBe("");
  expect(cluster.share(cluster.resource("gpu")!, 5)).toBe(0.25);
  expect(cluster.share(cluster.resource("gpu")!, 0)).toBeNaN();
});

test("a node that goes leaves a free row, which the next one takes", () => {
  const cluster = new Cluster(columns());
  cluster.apply(change({ nodes: [{ row: 0, name: "", allocatable: {}, requested: {}, labels: {}, taints: "", status: "" }] }));
  expect([cluster.size, cluster.row("a"), cluster.resource("cpu")!.allocatable[0]]).toEqual([1, -1, 0]);
  cluster.apply(change({ nodes: [node(0, "c")] }));
  expect([cluster.size, cluster.row("c")]).toEqual([2, 0]);
});

test("amounts of rows that nobody knows are left out", () => {
  const cluster = new Cluster(columns());
  cluster.apply(change({ rows: [9], requested: { cpu: [1], gpu: [1] } }));
  expect([...cluster.resource("cpu")!.requested]).toEqual([0, 500]);
});
