// Writes src/api.ts from docs/dashboard-schema.json, which `make reference` and `make ui` write.
import { readFileSync, writeFileSync } from "node:fs";
import { compile } from "json-schema-to-typescript";

const target = process.argv[2] ?? "src/api.ts";
const schema = JSON.parse(readFileSync("../docs/dashboard-schema.json", "utf8"));
for (const part of Object.values(schema.$defs)) plain(part);
const text = await compile({ ...schema, title: "Documents", type: "object", additionalProperties: false }, "Documents", {
  additionalProperties: false,
  bannerComment: "// Made by `make ui` from src/kubesched/dashboard/schema.py. Do not edit.",
  unreachableDefinitions: true,
});
writeFileSync(target, text.replace(/ \*\n \* This interface was referenced by[^/]*\*\//g, " */").replace(/\/\*\*\n \* This interface was referenced by[^/]*\*\/\n/g, "").replace("export interface Documents {}\n", ""));

/** Removes titles, which would become types of their own, and indentation of descriptions. */
function plain(part) {
  if (Array.isArray(part)) part.forEach(plain);
  else if (part && typeof part === "object") {
    delete part.default;
    if (typeof part.description === "string") part.description = part.description.replace(/\n +/g, "\n").trim();
    Object.values(part).forEach(plain);
  }
}
