import type { Condition } from "@/client";
import type { Alert } from "@/shared/api/types";

/** The conditions in the order of the form. */
export const CONDITIONS: Record<Condition, string> = {
  "job.completed": "Job completed",
  "job.failed": "Job failed",
  "job.stuck": "Job stuck",
  "job.waiting": "Job waiting too long",
  "loss.not_finite": "Loss NaN or infinite",
  "loss.spike": "Loss spike",
  "node.down": "Node down",
  "disk.filling": "Disk filling up",
  "quota.reached": "Quota reached",
};

export const TARGETS = { webhook: "Webhook", slack: "Slack", mail: "Mail", browser: "Browser" };
export const SCOPES = { cluster: "Whole cluster", project: "Project", user: "User", job: "Job" };

export function conditionLabel(condition: string): string {
  if (condition === "alert.test") return "Test";
  if (condition === "alert.disabled") return "Alert disabled";
  return CONDITIONS[condition as Condition] ?? condition;
}

export function targetText({ target: { kind, url } }: Alert): string {
  return [TARGETS[kind], (url ?? "").replace(/^mailto:/, "")].filter(Boolean).join(" ");
}

export function scopeText({ scope: { kind, value } }: Alert): string {
  return value === null ? SCOPES[kind] : `${SCOPES[kind]} ${value}`;
}

/** The state for its badge: `failing` while its target refuses messages. */
export function stateOf({ enabled, failing_since }: Alert): string {
  if (!enabled) return "disabled";
  return failing_since === null ? "enabled" : "failing";
}
