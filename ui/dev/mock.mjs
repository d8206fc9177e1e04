// Small stand-in for the API, to work on the page without kubesched: node dev/mock.mjs [NODES] [live|recording|two] [PORT]
import { createServer } from "node:http";
import { readFileSync } from "node:fs";
import { extname, join, normalize } from "node:path";

const NODES = Number(process.argv[2] ?? 5000);
const KIND = process.argv[3] ?? "live";
const STATIC = new URL("../../src/kubesched/dashboard/static/", import.meta.url).pathname;
const TYPES = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".txt": "text/plain" };
const CSP = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const LENGTH = 7200;
const RATE = Number(process.env.RATE ?? 200);

let seed = 7;
const random = () => ((seed = (seed * 1103515245 + 12345) & 0x7fffffff) / 0x7fffffff);
const zones = ["zone-a", "zone-b", "zone-c"];
const names = Array.from({ length: NODES }, (_, at) => `node-${String(at).padStart(5, "0")}`);
const cpu = names.map((_, at) => (at % 5 ? 32000 : 64000));
const memory = cpu.map((each) => each * 4 * 1048576);
const gpus = names.map((_, at) => (at % 10 ? 0 : 8));
const used = names.map((_, at) => 0.15 + 0.7 * random() * ((at % 997) / 997));
const version = { now: 1 };

const columns = () => ({
  names,
  resources: [
    { name: "cpu", unit: "millicores", devices: false, allocatable: cpu, requested: cpu.map((each, at) => Math.round(each * used[at])) },
    { name: "memory", unit: "bytes", devices: false, allocatable: memory, requested: memory.map((each, at) => Math.round(each * used[at] * 0.8)) },
    { name: "pods", unit: "units", devices: false, allocatable: cpu.map(() => 110), requested: used.map((each) => Math.round(each * 60)) },
    { name: "gpu.example.com", unit: "units", devices: true, allocatable: gpus, requested: gpus.map((each, at) => Math.floor(each * used[at])) },
  ],
  labels: [
    { key: "topology.kubernetes.io/zone", values: zones, index: names.map((_, at) => at % 3) },
    { key: "rack", values: Array.from({ length: Math.ceil(NODES / 40) }, (_, at) => `rack-${at}`), index: names.map((_, at) => Math.floor(at / 40)) },
  ],
  taints: { values: ["dedicated=gpu:NoSchedule"], index: names.map((_, at) => (at % 10 ? -1 : 0)) },
  status: { values: ["Ready", "Cordoned", "NotReady"], index: names.map((_, at) => (at % 211 === 0 ? 2 : at % 97 === 0 ? 1 : 0)) },
});
const live = KIND === "live";
const now = () => (live ? Date.now() / 1000 : LENGTH);
const sampleAt = (at) => ({
  at, queue: { active: Math.round(20 + 15 * Math.sin(at / 60)), backoff: 7, unschedulable: 42, gated: 3, permit: 0, binding: 2 },
  onNodes: NODES * 18 + Math.round(at % 1e5), bound: Math.round(RATE * (1 + Math.sin(at / 200))), failed: 3, waitP50: 0.02 + 0.01 * Math.sin(at / 90), waitP99: 0.4,
  utilisation: { cpu: 0.53 + 0.1 * Math.sin(at / 500), memory: 0.41, "gpu.example.com": 0.3 }, fragmentation: { cpu: 0.06 }, cost: live ? null : 1234,
});
const info = (id) => ({ id, name: live ? "demo cluster" : `plan ${id}`, mode: live ? "embedded" : "recording", start: live ? now() : 0, end: live ? null : LENGTH, whatIf: true, writable: live, explains: true, remarks: [] });
const row = (at) => ({ namespace: "default", name: `web-${at}`, workload: "ReplicaSet/web", state: at % 4 ? "Running" : "Unschedulable", node: at % 4 ? names[at % NODES] : "", priority: 0, created: now() - at });
const profiles = [{ name: "default-scheduler", scores: [{ plugin: "NodeResourcesFit", weight: 1 }, { plugin: "TaintToleration", weight: 3 }, { plugin: "PodTopologySpread", weight: 2 }] }];

function change(at) {
  const rows = Array.from({ length: Math.ceil(RATE / 10) }, () => Math.floor(random() * NODES));
  for (const each of rows) used[each] = Math.min(0.99, Math.max(0, used[each] + (random() - 0.48) * 0.05));
  return {
    version: ++version.now, at, rows: [...new Set(rows)], requested: { cpu: [...new Set(rows)].map((each) => Math.round(cpu[each] * used[each])) }, nodes: [],
    bound: rows.map((each, place) => ({ pod: `default/job-${version.now}-${place}`, row: each })), boundCount: rows.length,
    preempted: random() < 0.1 ? [{ pod: "default/urgent", row: rows[0], victims: ["default/batch-1"] }] : [], preemptedCount: 0, sample: version.now % 10 ? null : sampleAt(at),
  };
}

const fixture = (name) => JSON.parse(readFileSync(join(process.env.FIXTURES ?? "/nonexistent", name), "utf8"));
const verdicts = (pod) => ({
  pod, at: now(), own: null, verdict: names.map((_, at) => (at % 10 === 0 ? 0 : used[at] > 0.5 ? 1 : -1)),
  reasons: [{ plugin: "TaintToleration", text: "node(s) had untolerated taint(s)", nodes: Math.ceil(NODES / 10) }, { plugin: "NodeResourcesFit", text: "Insufficient cpu", nodes: used.filter((each, at) => at % 10 && each > 0.5).length }],
  scores: profiles[0].scores.map((each) => ({ ...each, scores: names.map((_, at) => (at % 10 && used[at] <= 0.5 ? Math.round(100 * each.weight * (1 - used[at])) : 0)) })),
});
const nodePage = (name) => {
  const at = names.indexOf(name);
  const pods = Array.from({ length: 12 }, (_, each) => ({ namespace: "default", name: `web-${at}-${each}`, workload: `ReplicaSet/web-${each % 5}`, phase: "Running", priority: 0, requests: { cpu: Math.round((cpu[at] * used[at] * (13 - each)) / 78), memory: 1073741824 } }));
  return { row: at, name, status: "Ready", allocatable: { cpu: cpu[at], memory: memory[at], pods: 110 }, requested: { cpu: Math.round(cpu[at] * used[at]), memory: 12 * 1073741824, pods: 12 }, labels: { zone: zones[at % 3] }, taints: at % 10 ? [] : ["dedicated=gpu:NoSchedule"], conditions: [{ type: "Ready", status: "True", message: "" }], pods, leftOut: 0 };
};
const queues = () => ({
  at: now(), rates: { arriving: 12.5, bound: 11.9, failed: 0.4 },
  places: ["Active", "Backoff", "Unschedulable", "Gated", "Permit", "Binding"].map((place, at) => ({ place, count: [20, 7, 42, 3, 0, 2][at], leftOut: place === "Unschedulable" ? 5 : 0, longest: 300, groups: at === 4 ? [] : [{ workload: "ReplicaSet/web", count: [20, 7, 37, 3, 0, 2][at], pod: "default/web-0", why: place === "Active" ? "" : "0/5000 nodes are available: 4500 Insufficient cpu, 500 node(s) had untolerated taint(s).", rejectedBy: ["NodeResourcesFit", "TaintToleration"], attempts: 4, waited: 300, until: now() + 30 }] })),
});
const podPage = (namespace, name) => ({ pod: { ...row(0), namespace, name }, uid: "1", schedulerName: "default-scheduler", requests: { cpu: 4000, memory: 8589934592 }, links: [{ kind: "ReplicaSet", namespace, name: "web", state: "" }, { kind: "PersistentVolumeClaim", namespace, name: "data", state: "Pending" }], life: [{ at: now() - 300, what: "created", text: "", node: "" }, { at: now() - 299, what: "tried", text: "attempt 1", node: "" }, { at: now() - 299, what: "rejected", text: "0/5000 nodes are available", node: "" }], complete: true, message: "0/5000 nodes are available: 4500 Insufficient cpu." });

function answer(path, params, body) {
  const at = params.get("at") ? Number(params.get("at")) : now();
  if (path === "dashboard") return { apiVersion: "kubesched.io/dashboard/v1", kind: "Dashboard", version: "0.1.0", runs: KIND === "two" ? [info(0), info(1)] : [info(0)] };
  const [, , what, ...rest] = path.split("/").map(decodeURIComponent);
  if (what === "state") return { version: version.now, at, nodes: columns(), sample: sampleAt(at), profiles };
  if (what === "series") return { samples: Array.from({ length: 300 }, (_, each) => sampleAt(live ? now() - 3000 + each * 10 : (each * LENGTH) / 300)) };
  if (what === "played") return { changes: Array.from({ length: 100 }, (_, each) => change(Number(params.get("from")) + ((each + 1) * (Number(params.get("to")) - Number(params.get("from")))) / 100)) };
  if (what === "queues") return queues();
  if (what === "pods" && !rest.length) return { pods: Array.from({ length: 60 }, (_, each) => row(each)).filter((each) => each.name.includes(params.get("q") ?? "")), total: 1234 };
  if (what === "pods") return podPage(...rest);
  if (what === "nodes") return nodePage(rest[0]);
  if (what === "verdicts") return verdicts(rest.join("/"));
  if (what === "explain") return fixture(rest.at(-1).startsWith("db") ? "placed.json" : "pending.json");
  if (what === "what-if" && !body) return { kinds: ["weight", "drain", "fail", "add-nodes", "scale"], applicable: ["drain", "scale"], workloads: [{ workload: "Deployment/default/web", replicas: 5 }], profiles };
  if (what === "what-if") return { changes: body.changes.map((each) => each.kind), before: { nodes: NODES, placed: 1000, pending: 4, utilisation: { cpu: 0.5 } }, after: { nodes: NODES, placed: 980, pending: 24, utilisation: { cpu: 0.71 } }, counts: { moved: 30, placed: 0, pending: 20, evicted: 2, lost: 0 }, newlyPending: ["default/web-1"], newlyPlaced: [], moved: ["default/web-2: node-00001 → node-00002"], why: ["20 pods: Insufficient cpu"], remarks: ["DaemonSets stay."], seconds: 12, nodes: columns() };
  if (what === "apply") return { done: ["drained node-00001"], remarks: [] };
  return null;
}

const server = createServer(async (request, response) => {
  const { pathname, searchParams } = new URL(request.url, "http://x");
  if (!pathname.startsWith("/ui/")) return response.writeHead(302, { location: "/ui/" }).end();
  const path = pathname.slice(4);
  if (path.startsWith("api/v1/runs/") && path.endsWith("/changes")) {
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write(": hello\n\n");
    const timer = setInterval(() => { const next = change(now()); response.write(`id: ${next.version}\nevent: change\ndata: ${JSON.stringify(next)}\n\n`); }, 100);
    return response.on("close", () => clearInterval(timer));
  }
  if (path.startsWith("api/v1/")) {
    let body = "";
    for await (const part of request) body += part;
    const found = answer(path.slice(7), searchParams, body ? JSON.parse(body) : null);
    return response.writeHead(found ? 200 : 404, { "content-type": "application/json" }).end(JSON.stringify(found ?? { error: "there is nothing here" }));
  }
  try {
    const file = normalize(path || "index.html");
    const content = readFileSync(join(STATIC, file));
    return response.writeHead(200, { "content-type": TYPES[extname(file)] ?? "application/octet-stream", "content-security-policy": CSP }).end(content);
  } catch {
    return response.writeHead(404).end();
  }
});
server.listen(Number(process.argv[4] ?? 0), "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}/ui/`));
