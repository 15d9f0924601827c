import type { AuditRecord } from "@/client";

const OUTCOMES = { done: "done", unauthenticated: "refused: not logged in", forbidden: "refused" };
const MAX_LENGTH = 80;

export function outcomeText({ outcome }: Pick<AuditRecord, "outcome">): string {
  return OUTCOMES[outcome];
}

/** The credential of a request, and where it came from. */
export function credentialText({ how, credential, address }: AuditRecord): string {
  const what = how === "token" && credential !== null ? `token ${credential}` : how;
  return [what === "none" ? "" : what, address ?? ""].filter((text) => text !== "").join(" from ");
}

/** The fields that were changed, each in a line. */
export function changesOf({ fields }: Pick<AuditRecord, "fields">): string[] {
  return Object.entries(fields ?? {}).map(
    ([name, [before, after]]) => `${name}: ${valueText(before)} → ${valueText(after)}`,
  );
}

function valueText(value: unknown): string {
  if (value === null || value === undefined || value === "") return "none";
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return text.length > MAX_LENGTH ? `${text.slice(0, MAX_LENGTH)}…` : text;
}
