/** Address of what is shown, in the hash, so that links can be shared: `#/pod/NAMESPACE/NAME?run=1`. */

import { signal } from "@preact/signals";

export interface Route {
  path: string[];
  params: URLSearchParams;
}

/** Parameters that go along from view to view. */
const KEPT = ["run", "at", "group", "colour", "pod"];

export const route = signal<Route>(parse(location.hash));

addEventListener("hashchange", () => {
  route.value = parse(location.hash);
});

function parse(hash: string): Route {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  return { path: path.split("/").filter(Boolean).map(decoded), params: new URLSearchParams(query) };
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Address of a view; an empty parameter is left out, and the kept ones of the present address are taken over. */
export function href(path: string[], params: Record<string, string> = {}): string {
  const query = new URLSearchParams();
  const present = route.value.params;
  for (const key of KEPT) if (present.get(key)) query.set(key, present.get(key)!);
  for (const [key, value] of Object.entries(params)) {
    if (value) query.set(key, value);
    else query.delete(key);
  }
  const text = query.toString();
  return `#/${path.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

/** Changes parameters of the present address, without an entry in the history. */
export function setParams(params: Record<string, string>): void {
  const query = new URLSearchParams(route.value.params);
  for (const [key, value] of Object.entries(params)) {
    if (value) query.set(key, value);
    else query.delete(key);
  }
  const text = query.toString();
  const hash = `#/${route.value.path.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
  history.replaceState(null, "", hash);
  route.value = parse(hash);
}

export function go(path: string[], params: Record<string, string> = {}): void {
  location.hash = href(path, params);
}
