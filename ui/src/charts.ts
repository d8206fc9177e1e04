/** Lines of the charts, from samples. Pure. */

import type { Sample } from "./api";
import { count, decimal, duration, percent } from "./format";

export interface LineOf {
  label: string;
  values: (number | null)[];
}

export interface ChartOf {
  id: string;
  title: string;
  unit: string;
  /** Value in words, with its unit. */
  words: (value: number) => string;
  lines: LineOf[];
}

/** Charts of a run; those without any value are left out. */
export function chartsOf(samples: readonly Sample[]): ChartOf[] {
  const line = (label: string, value: (sample: Sample, before: Sample | undefined) => number | null): LineOf => ({
    label,
    values: samples.map((sample, at) => value(sample, samples[at - 1])),
  });
  const keys = (of: (sample: Sample) => Record<string, number>) => [...new Set(samples.flatMap((sample) => Object.keys(of(sample))))];
  const rate = (value: number, sample: Sample, before: Sample | undefined) => (before && sample.at > before.at ? value / (sample.at - before.at) : null);
  const queue = (name: keyof Sample["queue"], label: string = name) => line(label, (sample) => sample.queue[name]);
  const charts: ChartOf[] = [
    {
      id: "throughput",
      title: "Throughput",
      unit: "pods per second",
      words: (value) => `${decimal(value)} /s`,
      lines: [line("bound", (sample, before) => rate(sample.bound, sample, before)), line("failed attempts", (sample, before) => rate(sample.failed, sample, before))],
    },
    { id: "queue", title: "Queue", unit: "pods", words: count, lines: [queue("active"), queue("backoff"), queue("unschedulable"), queue("gated"), queue("permit", "on permit"), queue("binding")] },
    { id: "waits", title: "Wait until bound", unit: "seconds", words: duration, lines: [line("half of the pods within", (sample) => sample.waitP50), line("99 % within", (sample) => sample.waitP99)] },
    { id: "utilisation", title: "Utilisation", unit: "% requested", words: percent, lines: keys((sample) => sample.utilisation).map((name) => line(name, (sample) => sample.utilisation[name] ?? null)) },
    { id: "fragmentation", title: "Fragmentation", unit: "% of what is free", words: percent, lines: keys((sample) => sample.fragmentation).map((name) => line(name, (sample) => sample.fragmentation[name] ?? null)) },
    { id: "pods", title: "Pods on nodes", unit: "pods", words: count, lines: [line("pods", (sample) => sample.onNodes)] },
    { id: "cost", title: "Cost", unit: "", words: decimal, lines: [line("cost", (sample) => sample.cost)] },
  ];
  return charts
    .map((chart) => ({ ...chart, lines: chart.lines.filter((each) => telling(chart.id, each)) }))
    .filter((chart) => chart.lines.length > 0);
}

/** Tells whether a line has something to show; places of the queue that no pod was ever in have not. */
function telling(chart: string, line: LineOf): boolean {
  const always = line.label === "active" || line.label === "bound";
  return chart === "queue" || chart === "throughput" ? always || line.values.some((value) => value) : line.values.some((value) => value !== null);
}

/** Last value of a line. */
export function latest(line: LineOf): number | null {
  for (let at = line.values.length - 1; at >= 0; at--) if (line.values[at] !== null) return line.values[at];
  return null;
}
