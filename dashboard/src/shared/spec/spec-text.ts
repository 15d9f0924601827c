import { parse, stringify } from "yaml";

/** The document that a text in YAML describes; undefined if it is not valid. */
export function documentOf(text: string): unknown {
  try {
    return parse(text, { logLevel: "error" }) as unknown;
  } catch {
    return undefined;
  }
}

/** A spec as YAML, without what is null: leaving a key out means the same. */
export function specText(spec: Record<string, unknown>): string {
  return stringify(withoutNulls(spec), { lineWidth: 100, aliasDuplicateObjects: false });
}

/** A spec in YAML with the project of its job, below the job's name; undefined: as it is. */
export function withProject(text: string, project: string | undefined): string {
  if (project === undefined) return text;
  const name = /^job:$/m.test(text) ? /^( {2})name: .*\n/m : /^()name: .*\n/m;
  return text.replace(name, (line, indent) => `${line}${indent}${stringify({ project })}`);
}

/** Who owns what a checked spec would create; the coordinator fills in who is not named. */
export function ownerText(user: unknown): string {
  return typeof user === "string" ? ` Owner: ${user}.` : "";
}

/** The file that a checked job needs on its nodes; code that was uploaded is brought there. */
export function pathText({ script, code }: { script?: unknown; code?: unknown }): string {
  if (code != null || typeof script !== "object" || script === null) return "";
  const { path } = script as { path?: unknown };
  return typeof path === "string" ? ` Every node that runs it needs ${path}.` : "";
}

function withoutNulls(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutNulls);
  if (typeof value !== "object" || value === null) return value;
  const kept = Object.entries(value).filter(([, each]) => each !== null);
  return Object.fromEntries(kept.map(([key, each]) => [key, withoutNulls(each)]));
}
