// Builds anew in a temporary folder, and compares with what is committed.
import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const folder = mkdtempSync(join(tmpdir(), "kubesched-ui-"));
const [types, out, built] = [join(folder, "api.ts"), join(folder, "static"), join(folder, "built.json")];
const run = (...command) => execFileSync(command[0], command.slice(1), { stdio: "inherit", env: { ...process.env, UI_OUT: out, UI_BUILT: built } });
const others = [];
try {
  run("node", "scripts/types.mjs", types);
  compare("src/api.ts", types);
  run("npx", "--no-install", "tsc", "--noEmit");
  run("npx", "--no-install", "vitest", "run");
  run("npx", "--no-install", "vite", "build", "--logLevel", "warn", "--outDir", out, "--emptyOutDir");
  run("node", "scripts/after.mjs");
  const committed = "../src/kubesched/dashboard/static";
  for (const name of new Set([...readdirSync(committed), ...readdirSync(out)])) compare(join(committed, name), join(out, name));
  compare("built.json", built);
} finally {
  rmSync(folder, { recursive: true });
}
if (others.length) {
  console.error(`not as built from the sources: ${others.join(", ")}; run \`make ui\` and commit what it writes`);
  process.exit(1);
}
console.log("the page is as built from its sources");

function compare(committed, fresh) {
  const content = (path) => {
    try {
      return readFileSync(path, "utf8");
    } catch {
      return null;
    }
  };
  if (content(committed) !== content(fresh)) others.push(committed);
}
