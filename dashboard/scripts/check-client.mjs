// Generates the API client into a temporary folder and compares it with the one in src/client,
// so that a change of the API that did not reach the dashboard fails the build. Generating takes
// seconds, so that a client found current is not checked again until it or an input changes.
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, relative } from "node:path";
import { tidy } from "./tidy-client.mjs";

const committed = "src/client";
const stamp = "node_modules/.cache/client.sha256";
const inputs = [
  "openapi.json",
  "openapi-ts.config.ts",
  "scripts/check-client.mjs",
  "scripts/tidy-client.mjs",
  "node_modules/.package-lock.json", // the installed versions of the generator and its parts
];

function files(folder) {
  const found = new Map();
  for (const name of readdirSync(folder, { recursive: true })) {
    const path = join(folder, name);
    if (statSync(path).isFile()) found.set(relative(folder, path), readFileSync(path, "utf8"));
  }
  return found;
}

function digest(client) {
  const contents = [...inputs.map((path) => [path, readFileSync(path, "utf8")]), ...client];
  return createHash("sha256").update(JSON.stringify(contents)).digest("hex");
}

function stamped() {
  try {
    return readFileSync(stamp, "utf8");
  } catch {
    return undefined;
  }
}

function generated() {
  const fresh = mkdtempSync(join(tmpdir(), "trainhall-client-"));
  try {
    execFileSync("npx", ["--no-install", "openapi-ts", "--silent"], {
      env: { ...process.env, OPENAPI_OUTPUT: fresh },
      stdio: ["ignore", "ignore", "inherit"],
    });
    tidy(fresh);
    return files(fresh);
  } finally {
    rmSync(fresh, { recursive: true, force: true });
  }
}

function staleFiles(have, want) {
  return [...new Set([...have.keys(), ...want.keys()])].filter(
    (name) => have.get(name) !== want.get(name),
  );
}

const have = files(committed);
const current = digest(have);
if (stamped() !== current) {
  const stale = staleFiles(have, generated());
  if (stale.length > 0) {
    process.stderr.write(
      `${committed} is not what openapi.json describes (${stale.join(", ")}): run \`npm run generate\`\n`,
    );
    process.exitCode = 1;
  } else {
    mkdirSync(dirname(stamp), { recursive: true });
    writeFileSync(stamp, current);
  }
}
