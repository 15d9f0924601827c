// Generates the API client into a temporary folder and compares it with the one in src/client,
// so that a change of the API that did not reach the dashboard fails the build.
import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { tidy } from "./tidy-client.mjs";

const committed = "src/client";
const fresh = mkdtempSync(join(tmpdir(), "trainhall-client-"));

function files(folder) {
  const found = new Map();
  for (const name of readdirSync(folder, { recursive: true })) {
    const path = join(folder, name);
    if (statSync(path).isFile()) found.set(relative(folder, path), readFileSync(path, "utf8"));
  }
  return found;
}

try {
  execFileSync("npx", ["--no-install", "openapi-ts", "--silent"], {
    env: { ...process.env, OPENAPI_OUTPUT: fresh },
    stdio: ["ignore", "ignore", "inherit"],
  });
  tidy(fresh);
  const have = files(committed);
  const want = files(fresh);
  const stale = [...new Set([...have.keys(), ...want.keys()])].filter(
    (name) => have.get(name) !== want.get(name),
  );
  if (stale.length > 0) {
    process.stderr.write(
      `${committed} is not what openapi.json describes (${stale.join(", ")}): run \`npm run generate\`\n`,
    );
    process.exitCode = 1;
  }
} finally {
  rmSync(fresh, { recursive: true, force: true });
}
