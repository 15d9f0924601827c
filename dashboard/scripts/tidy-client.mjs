// Takes out of the generated client what is not about this API: links to packages we do not use.
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

export function tidy(folder) {
  const path = join(folder, "client", "types.gen.ts");
  const text = readFileSync(path, "utf8");
  const kept = text.split("\n").filter((line) => !line.includes("{@link https://"));
  writeFileSync(path, kept.join("\n"));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) tidy("src/client");
