/** State of the page. */

import { computed, effect, signal } from "@preact/signals";
import type { Dashboard, Verdicts } from "./api";
import { aborted, get, RequestError } from "./client";
import type { Theme } from "./colours";
import { Player } from "./player";
import { route } from "./route";
import { Run } from "./run";

export type Opening = { state: "loading" } | { state: "open" } | { state: "failed"; status: number; text: string };

export const opening = signal<Opening>({ state: "loading" });
export const version = signal("");
export const runs = signal<Run[]>([]);
export const player = signal<Player | null>(null);
/** Moment of a live cluster around which changes are listed; null for the present. */
export const past = signal<number | null>(null);

/** Run that views about one pod or node are about. */
export const chosen = computed<Run | undefined>(() => {
  const id = route.value.params.get("run");
  return runs.value.find((run) => String(run.info.id) === id) ?? runs.value[0];
});

// -- theme ---------------------------------------------------------------------------------------------

const THEME = "kubesched.theme";
const prefersDark = matchMedia("(prefers-color-scheme: dark)");
export const systemTheme = signal<Theme>(prefersDark.matches ? "dark" : "light");
export const ownTheme = signal<Theme | null>(storedTheme());
export const theme = computed<Theme>(() => ownTheme.value ?? systemTheme.value);
prefersDark.addEventListener("change", (event) => (systemTheme.value = event.matches ? "dark" : "light"));
effect(() => {
  document.documentElement.dataset.theme = theme.value;
});

function storedTheme(): Theme | null {
  try {
    const found = localStorage.getItem(THEME);
    return found === "light" || found === "dark" ? found : null;
  } catch {
    return null;
  }
}

export function switchTheme(): void {
  const next = theme.value === "dark" ? "light" : "dark";
  ownTheme.value = next === systemTheme.value ? null : next;
  try {
    if (ownTheme.value) localStorage.setItem(THEME, ownTheme.value);
    else localStorage.removeItem(THEME);
  } catch {
    // Without storage the choice ends with the page.
  }
}

// -- start ---------------------------------------------------------------------------------------------

const RETRY = 2000;

/** Asks what is shown, until there is an answer, and starts the runs. */
export async function open(): Promise<void> {
  try {
    const found = await get<Dashboard>("dashboard");
    version.value = found.version;
    runs.value = found.runs.map((info) => new Run(info));
    player.value = new Player(runs.value);
    opening.value = { state: "open" };
    for (const run of runs.value) if (!run.recorded) void run.start();
    player.value.start();
  } catch (error) {
    const status = error instanceof RequestError ? error.status : 0;
    opening.value = { state: "failed", status, text: error instanceof Error ? error.message : String(error) };
    setTimeout(() => void open(), RETRY);
  }
}

// -- verdicts for the selected pod ---------------------------------------------------------------------

export interface PodVerdicts {
  pod: string;
  verdicts: Verdicts | null;
  error: string;
}

const verdictsOf = new WeakMap<Run, ReturnType<typeof signal<PodVerdicts>>>();
const VERDICTS_PAUSE = 5000;

/** Verdicts of a run for the pod in the address; they follow the run, not more often than every five seconds. */
export function verdicts(run: Run): PodVerdicts {
  let found = verdictsOf.get(run);
  if (!found) {
    found = signal<PodVerdicts>({ pod: "", verdicts: null, error: "" });
    verdictsOf.set(run, found);
    keepVerdicts(run, found);
  }
  return found.value!;
}

function keepVerdicts(run: Run, found: ReturnType<typeof signal<PodVerdicts>>): void {
  let controller: AbortController | null = null;
  let asked = "";
  let last = 0;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const load = async (pod: string): Promise<void> => {
    controller?.abort();
    const own = (controller = new AbortController());
    last = Date.now();
    try {
      const value = await get<Verdicts>(run.path(`verdicts/${pod.split("/").map(encodeURIComponent).join("/")}`), own.signal);
      found.value = { pod, verdicts: value, error: "" };
    } catch (error) {
      if (!aborted(error)) found.value = { pod, verdicts: null, error: error instanceof Error ? error.message : String(error) };
    }
  };
  effect(() => {
    const pod = route.value.params.get("pod") ?? "";
    void run.tick.value;
    clearTimeout(timer);
    if (pod !== asked) found.value = { pod, verdicts: null, error: "" };
    const wait = pod === asked ? Math.max(0, last + VERDICTS_PAUSE - Date.now()) : 0;
    asked = pod;
    if (!pod) controller?.abort();
    else if (run.cluster) timer = setTimeout(() => void load(pod), wait);
  });
}
