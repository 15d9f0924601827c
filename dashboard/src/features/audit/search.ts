/** Filters of the audit log, as the URL has them. */
export interface AuditSearch {
  user?: string | undefined;
  /** An action, or the kind of object that it begins with. */
  action?: string | undefined;
  project?: string | undefined;
  object?: string | undefined;
  /** Hours back; left out: all of it. */
  hours?: number | undefined;
}

const MAX_LENGTH = 255;
export const TEXTS = ["user", "action", "project", "object"] as const;
const MAX_HOURS = 24 * 366;

export function auditSearch(raw: Record<string, unknown>): AuditSearch {
  const { hours } = raw;
  const texts = TEXTS.map((key) => [key, raw[key]] as const).filter(
    ([, value]) => (typeof value === "string" && value !== "") || typeof value === "number",
  );
  return {
    ...Object.fromEntries(texts.map(([key, value]) => [key, String(value).slice(0, MAX_LENGTH)])),
    ...(typeof hours === "number" && hours > 0 && hours <= MAX_HOURS ? { hours } : {}),
  };
}
