import { expect, test } from "vitest";
import type { Verdicts } from "../src/api";
import { Cluster } from "../src/cluster";
import { modes, painter, pixel, scale, type ClassLegend } from "../src/colours";
import { amount, duration, moment, percent } from "../src/format";

const cluster = new Cluster({
  names: ["a", "b", "", "d"],
  resources: [
    { name: "cpu", unit: "millicores", devices: false, allocatable: [1000, 2000, 0, 0], requested: [1000, 0, 0, 0] },
    { name: "gpu.example.com", unit: "units", devices: true, allocatable: [8, 0, 0, 0], requested: [6, 0, 0, 0] },
  ],
  labels: [{ key: "zone", values: ["z1"], index: [0, 0, -1, -1] }],
  taints: { values: [], index: [-1, -1, -1, -1] },
  status: { values: ["Ready", "NotReady"], index: [0, 1, -1, 0] },
});
const verdicts: Verdicts = {
  pod: "default/p",
  at: 0,
  own: null,
  reasons: [{ plugin: "NodeResourcesFit", text: "Insufficient cpu", nodes: 1 }],
  verdict: [0, -1, -2, -1],
  scores: [{ plugin: "TaintToleration", weight: 3, scores: [0, 300, 0, 150] }],
};

test("a pixel has the bytes of its colour in the order of an image", () => {
  expect([...new Uint8Array(Uint32Array.of(pixel("#0a141e")).buffer)]).toEqual([10, 20, 30, 255]);
});

test.each(["light", "dark"] as const)("the %s scale changes its luminance evenly, away from the ground", (theme) => {
  const light = [...scale(theme)].map((each) => 0.2126 * (each & 255) + 0.7152 * ((each >> 8) & 255) + 0.0722 * ((each >> 16) & 255));
  for (let at = 1; at < 256; at++) expect((light[at] - light[at - 1]) * (theme === "dark" ? 1 : -1)).toBeGreaterThan(-1);
});

test("utilisation is coloured by its share, and nodes without the resource or not ready are grey", () => {
  const use = painter(cluster, "use:cpu", "dark", null);
  expect(use.colour(0)).toBe(scale("dark")[255]);
  expect(use.colour(1)).toBe(use.colour(3));
  expect([...scale("dark")]).not.toContain(use.colour(1));
  expect([use.value(0), use.value(1), use.value(3)]).toEqual([1, NaN, NaN]);
  expect(use.text(1)).toBe("NotReady");
  expect(use.text(0)).toBe("cpu 100 %: 1 core of 1 core");
  expect(painter(cluster, "free:gpu.example.com", "dark", null).text(0)).toBe("gpu.example.com: 2 of 8 free");
});

test("the legend of a status counts nodes", () => {
  const legend = painter(cluster, "status", "light", null).legend() as ClassLegend;
  expect(legend.entries.map((entry) => [entry.label, entry.nodes])).toEqual([["Ready", 2], ["NotReady", 1]]);
});

test("verdicts and scores are those of the document", () => {
  const verdict = painter(cluster, "verdict", "light", verdicts);
  expect(verdict.text(0)).toBe("Insufficient cpu (NodeResourcesFit)");
  expect((verdict.legend() as ClassLegend).entries.map((entry) => entry.nodes)).toEqual([2, 1]);
  const score = painter(cluster, "score:TaintToleration", "light", verdicts);
  expect([score.value(0), score.value(1), score.value(3)]).toEqual([NaN, 300, 150]);
  expect(modes(cluster, verdicts).map((mode) => mode.id)).toContain("score:TaintToleration");
  expect(modes(cluster, null).map((mode) => mode.id)).not.toContain("verdict");
});

test("numbers have units", () => {
  expect([amount(1500, "millicores"), amount(3 * 1024 ** 3, "bytes"), amount(12000, "units")]).toEqual(["1.5 cores", "3 GiB", "12,000"]);
  expect([duration(0.02), duration(61), duration(7325), duration(90000)]).toEqual(["20 ms", "1 min 1 s", "2 h 2 min", "1 d 1 h"]);
  expect([percent(0.5), percent(0.051), moment(3725)]).toEqual(["50 %", "5.1 %", "1:02:05"]);
});
