/** Time: charts of the samples with one cursor for all, of one run or of two. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import type { Sample, Series } from "../api";
import { chartsOf, latest, type ChartOf } from "../charts";
import { get } from "../client";
import type { Theme } from "../colours";
import { coarse, moment, onCalendar } from "../format";
import type { Run } from "../run";
import { chosen, past, player, runs, theme } from "../store";
import { Happenings } from "./happenings";

const HEIGHT = 170;
const LINES: Record<Theme, string[]> = {
  light: ["#0b63ce", "#c2410c", "#0f766e", "#9333a8", "#8a6d00", "#4b5563"],
  dark: ["#6cb2ff", "#ff9e5e", "#45d0b8", "#d68cf0", "#e3c54a", "#b3bcc8"],
};
const CALM = 1000;
const STEPS = [0.01, 0.1, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800];

export function TimeView() {
  const shown = runs.value;
  const found = shown.map((run) => useSamples(run));
  const charts = useMemo(() => combined(shown, found.map((each) => each.samples)), [shown, ...found.map((each) => each.samples)]);
  const error = found.find((each) => each.error)?.error;
  return (
    <>
      <h1 tabIndex={-1}>Time</h1>
      {error && (
        <p class="fault" role="alert">
          {error}
        </p>
      )}
      {shown.length > 1 && (
        <p class="dim">
          {shown.map((run, at) => `${at ? "dashed" : "solid"}: ${run.info.name}`).join(", ")}; times are since the start of each.
        </p>
      )}
      {found.every((each) => each.loaded) && !charts.length && <p class="dim empty">There are no figures yet.</p>}
      {!found.every((each) => each.loaded || each.error) && (
        <p class="dim" role="status" aria-busy="true" data-testid="loading">
          <span class="spinner" aria-hidden="true" /> {charts.length ? "Loading the earlier figures…" : "Loading the figures…"}
        </p>
      )}
      <div class="charts">
        {charts.map((chart) => (
          <Chart key={`${chart.of.id} ${chart.labels.join()}`} chart={chart} theme={theme.value} />
        ))}
      </div>
      <div class={shown.length > 1 ? "columns even" : ""}>
        {shown.map((run) => (
          <div key={run.info.id} class="panel">
            {shown.length > 1 && <h2>{run.info.name}</h2>}
            <Happenings run={run} />
          </div>
        ))}
      </div>
    </>
  );
}

interface Samples {
  samples: readonly Sample[];
  loaded: boolean;
  error: string;
}

/** Samples of a run: those of the server, and those that came since. */
function useSamples(run: Run): Samples {
  const [past, setPast] = useState<Samples>({ samples: [], loaded: false, error: "" });
  const [all, setAll] = useState<readonly Sample[]>([]);
  const last = useRef(0);
  useEffect(() => {
    const controller = new AbortController();
    get<Series>(`runs/${run.info.id}/series`, controller.signal).then(
      (series) => setPast({ samples: series.samples, loaded: true, error: "" }),
      (error: Error) => controller.signal.aborted || setPast((old) => ({ ...old, error: error.message })),
    );
    return () => controller.abort();
  }, [run, run.loads.value && !run.recorded]);
  const tick = run.recorded ? 0 : run.tick.value;
  useEffect(() => {
    if (Date.now() - last.current < CALM && all.length) return;
    last.current = Date.now();
    const end = past.samples[past.samples.length - 1]?.at ?? -Infinity;
    setAll([...past.samples, ...run.recent.filter((sample) => sample.at > end)]);
  }, [past, tick]);
  return { ...past, samples: all };
}

// -- one chart -----------------------------------------------------------------------------------------

interface Shown {
  of: ChartOf;
  labels: string[];
  dashed: boolean[];
  data: uPlot.AlignedData;
  /** Moments of one run; of two, seconds since the start of each. */
  calendar: boolean;
  latest: string;
}

function combined(shown: Run[], samples: (readonly Sample[])[]): Shown[] {
  const several = shown.length > 1;
  const start = (at: number) => (several ? (shown[at].info.start ?? 0) : 0);
  const charts = samples.map((each) => chartsOf(each));
  const ids = [...new Set(charts.flatMap((list) => list.map((chart) => chart.id)))];
  return ids.map((id) => {
    const parts = charts.flatMap((list, at) => list.filter((chart) => chart.id === id).map((chart) => ({ chart, at })));
    const tables = parts.map(({ chart, at }) => [samples[at].map((sample) => sample.at - start(at)), ...chart.lines.map((line) => line.values)] as uPlot.AlignedData);
    const of = parts[0].chart;
    return {
      of,
      labels: parts.flatMap(({ chart, at }) => chart.lines.map((line) => (several ? `${line.label}, ${shown[at].info.name}` : line.label))),
      dashed: parts.flatMap(({ chart, at }) => chart.lines.map(() => at > 0)),
      data: tables.length > 1 ? uPlot.join(tables) : tables[0],
      calendar: !several && onCalendar(samples[0][0]?.at ?? 0),
      latest: several ? "" : of.lines.map((line) => `${line.label} ${latest(line) === null ? "–" : of.words(latest(line)!)}`).join(" · "),
    };
  });
}

function Chart({ chart, theme }: { chart: Shown; theme: Theme }) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const offset = useRef(0);
  const timed = player.value;
  // Charts of one run show its own moments, charts of two the seconds since the start of each.
  offset.current = runs.value.length > 1 ? 0 : (chosen.value?.info.start ?? 0);
  useEffect(() => {
    const element = box.current!;
    const made = (plot.current = new uPlot(options(chart, theme, element.clientWidth, () => (timed?.present ? timed.position.peek() + offset.current : past.peek())), chart.data, element));
    const click = () => {
      const left = made.cursor.left ?? -1;
      if (left < 0) return;
      if (timed?.present) timed.seek(made.posToVal(left, "x") - offset.current);
      else past.value = made.posToVal(left, "x");
    };
    made.over.addEventListener("click", click);
    const observer = new ResizeObserver(() => element.clientWidth && made.setSize({ width: element.clientWidth, height: HEIGHT }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      made.destroy();
    };
  }, [theme, chart.labels.join()]);
  useEffect(() => plot.current?.setData(chart.data), [chart.data]);
  useEffect(() => (timed?.present ? timed.position : past).subscribe(() => plot.current?.redraw(false, false)), [timed, theme]);
  return (
    <figure class="panel chart" data-testid={`chart-${chart.of.id}`}>
      <figcaption>
        <b>{chart.of.title}</b> <span class="dim">{chart.of.unit}</span>
      </figcaption>
      <div ref={box} class="plot" role="img" aria-label={`${chart.of.title} over time. Now: ${chart.latest}`} />
    </figure>
  );
}

function options(chart: Shown, theme: Theme, width: number, playhead: () => number | null): uPlot.Options {
  const ink = theme === "dark" ? "#aab2bd" : "#545c68";
  const grid = { stroke: theme === "dark" ? "#262d36" : "#e6e9ed", width: 1 };
  const colours = LINES[theme];
  const perRun = chart.dashed.filter((each) => !each).length || chart.labels.length;
  const axis = { stroke: ink, grid, ticks: { ...grid, size: 4 }, font: "11px system-ui, sans-serif" };
  const time = { values: (_: uPlot, splits: number[], _axis: number, _space: number, step: number) => splits.map((at) => (chart.calendar ? coarse(at, step) : moment(at))) };
  return {
    width,
    height: HEIGHT,
    scales: { x: { time: chart.calendar }, y: { range: (_, min, max) => [Math.min(0, min ?? 0), (max ?? 0) > 0 ? max * 1.05 : 1] } },
    cursor: { sync: { key: "time" }, drag: { x: false, y: false }, points: { size: 6 } },
    legend: { live: true, markers: { fill: (_, at) => colours[(at - 1) % perRun % colours.length] } },
    axes: [
      { ...axis, ...time, size: 28, space: 80, ...(chart.calendar ? {} : { incrs: STEPS }) },
      { ...axis, size: (_, values) => 14 + 6.5 * Math.max(5, ...(values ?? []).map((value) => value.length)), values: (_, splits) => splits.map((value) => chart.of.words(value)) },
    ],
    series: [
      { label: "time", value: (_, at) => (at == null ? "–" : moment(at)) },
      ...chart.labels.map((label, at) => ({
        label,
        stroke: colours[at % perRun % colours.length],
        width: 1.5,
        dash: chart.dashed[at] ? [5, 4] : [],
        spanGaps: true,
        points: { size: 5, ...(chart.data[0].length < 2 ? { show: true } : {}) },
        value: (_: uPlot, value: number | null) => (value == null ? "–" : chart.of.words(value)),
      })),
    ],
    hooks: {
      // Without a pointer the legend has the values of the present moment of a recording, or the newest.
      setLegend: [(plot) => present(plot, playhead())],
      ready: [(plot) => present(plot, playhead())],
      setData: [(plot) => present(plot, playhead())],
      draw: [
        (plot) => {
          const at = playhead();
          present(plot, at);
          if (at === null) return;
          const x = Math.round(plot.valToPos(at, "x", true));
          plot.ctx.fillStyle = theme === "dark" ? "#ffffff" : "#14181f";
          plot.ctx.fillRect(x, plot.bbox.top, Math.max(1, devicePixelRatio), plot.bbox.height);
        },
      ],
    },
  };
}

function present(plot: uPlot, playhead: number | null): void {
  const last = plot.data[0].length - 1;
  const idx = playhead === null ? last : Math.min(last, plot.valToIdx(playhead));
  if (idx >= 0 && plot.cursor.idx == null && plot.legend.idx !== idx) plot.setLegend({ idx }, false);
}
