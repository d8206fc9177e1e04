// After a build: writes the licences of what was compiled in, and built.json with hashes of sources and results.
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const out = process.env.UI_OUT ?? "../src/kubesched/dashboard/static";
const SOURCES = ["index.html", "package.json", "package-lock.json", "tsconfig.json", "vite.config.ts", "public", "scripts", "src", "../docs/dashboard-schema.json"];

writeFileSync(join(out, "licences.txt"), licences());
const built = { sources: Object.assign({}, ...SOURCES.map((name) => hashes(".", name))), results: hashes(out, "") };
writeFileSync(process.env.UI_BUILT ?? "built.json", JSON.stringify(built, null, 1) + "\n");

/** Licences of the run-time packages, and of those that they need. */
function licences() {
  const lock = JSON.parse(readFileSync("package-lock.json", "utf8")).packages;
  const parts = Object.entries(lock).filter(([path, entry]) => path && !entry.dev && !entry.peer);
  return parts.map(([path, entry]) => {
    const name = path.replace("node_modules/", "");
    const file = readdirSync(path).find((each) => /^licen[cs]e/i.test(each));
    if (!file) throw new Error(`${name} has no licence file`);
    return `${name} ${entry.version} (${entry.license})\n\n${readFileSync(join(path, file), "utf8").trim()}\n`;
  }).join(`\n${"-".repeat(80)}\n\n`);
}

function hashes(root, name) {
  const path = join(root, name);
  let names;
  try {
    names = readdirSync(path);
  } catch (error) {
    if (error.code !== "ENOTDIR") throw error;
    return { [name]: createHash("sha256").update(readFileSync(path)).digest("hex") };
  }
  return Object.assign({}, ...names.sort().map((each) => hashes(root, name ? `${name}/${each}` : each)));
}
