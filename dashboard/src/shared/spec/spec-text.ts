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

/** Who owns what a checked spec would create; the coordinator fills in who is not named. */
export function ownerText(user: unknown): string {
  return typeof user === "string" ? ` Owner: ${user}.` : "";
}

/** The file that a checked job needs on its nodes; code that was uploaded is brought there. */
export function pathText({ script, code }: { script?: unknown; code?: unknown }): string {
  if (typeof code === "string" || typeof script !== "object" || script === null) return "";
  const { path } = script as { path?: unknown };
  return typeof path === "string" ? ` Every node that runs it needs ${path}.` : "";
}

function withoutNulls(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutNulls);
  if (typeof value !== "object" || value === null) return value;
  const kept = Object.entries(value).filter(([, each]) => each !== null);
  return Object.fromEntries(kept.map(([key, each]) => [key, withoutNulls(each)]));
}
