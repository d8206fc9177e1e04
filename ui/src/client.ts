/** Requests to the API. */

import type { Fault } from "./api";

/** Request that failed. `status` is that of HTTP; 0 if there was no answer. */
export class RequestError extends Error {
  constructor(
    readonly status: number,
    text: string,
  ) {
    super(text);
  }
}

const BASE = "api/v1/";

export function url(path: string): string {
  return new URL(BASE + path, location.href.split("#")[0]).href;
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return answer<T>(await sent(url(path), signal ? { signal } : {}));
}

export async function post<T>(path: string, body: unknown, signal?: AbortSignal): Promise<T> {
  const headers = { "Content-Type": "application/json", "X-Kubesched": "1" };
  return answer<T>(await sent(url(path), { method: "POST", headers, body: JSON.stringify(body), ...(signal ? { signal } : {}) }));
}

async function sent(address: string, options: RequestInit): Promise<Response> {
  try {
    return await fetch(address, { credentials: "same-origin", ...options });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new RequestError(0, "kubesched does not answer");
  }
}

async function answer<T>(response: Response): Promise<T> {
  if (response.ok) return (await response.json()) as T;
  let text = `${response.status} ${response.statusText}`.trim();
  try {
    text = ((await response.json()) as Fault).error || text;
  } catch {
    // Answers that are not from the API, such as those of a proxy, have no fault in them.
  }
  throw new RequestError(response.status, text);
}

export function aborted(error: unknown): boolean {
  return error instanceof DOMException && error.name === "AbortError";
}

export function query(params: Record<string, string | number | null | undefined>): string {
  const found = new URLSearchParams();
  for (const [key, value] of Object.entries(params)) if (value !== null && value !== undefined && value !== "") found.set(key, String(value));
  const text = found.toString();
  return text ? `?${text}` : "";
}
