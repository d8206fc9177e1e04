/** Documents of the API in views: loaded when shown, and again when the run goes on. */

import { effect } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { aborted, get } from "./client";
import type { Run } from "./run";

export interface Loaded<T> {
  value: T | null;
  error: string;
  loading: boolean;
}

/** Least milliseconds between two requests for one document. */
const PAUSE = 1500;

export function useDocument<T>(run: Run | undefined, path: string, params: Record<string, string> = {}, pause = PAUSE): Loaded<T> {
  const key = `${run?.info.id} ${path} ${JSON.stringify(params)}`;
  const [shown, setShown] = useState<Loaded<T> & { key: string }>({ value: null, error: "", loading: true, key });
  const last = useRef(0);
  useEffect(() => {
    if (!run || !path) return undefined;
    let controller: AbortController | null = null;
    let timer: ReturnType<typeof setTimeout> | undefined;
    let ended = false;
    last.current = 0;
    const load = async (): Promise<void> => {
      controller = new AbortController();
      last.current = Date.now();
      try {
        const value = await get<T>(path === "what-if" ? run.timeless(path) : run.path(path, params), controller.signal);
        if (!ended) setShown({ value, error: "", loading: false, key });
      } catch (error) {
        if (!ended && !aborted(error)) setShown((old) => ({ value: old.key === key ? old.value : null, error: (error as Error).message, loading: false, key }));
      }
      controller = null;
    };
    const again = (): void => {
      timer = undefined;
      // An answer that takes long is waited for; the next request comes after it.
      if (controller) timer = setTimeout(again, PAUSE / 3);
      else void load();
    };
    const stop = effect(() => {
      void run.tick.value;
      if (!run.cluster) return;
      timer ??= setTimeout(again, Math.max(0, last.current + pause - Date.now()));
    });
    return () => {
      ended = true;
      stop();
      clearTimeout(timer);
      controller?.abort();
    };
  }, [key]);
  return shown.key === key ? shown : { value: null, error: "", loading: true };
}
