import type { ApiToken } from "@/client";

/** What a token allows, in words. */
export function reachText({ project, role, scopes }: ApiToken, user: string): string {
  if (scopes !== null) return `reading ${scopes.join(", ")} only`;
  if (project === null && role === null) return `all that ${user} may`;
  const where = project === null ? "in every project" : `in project ${project}`;
  return `${role === null ? `what ${user} may` : `${role} at most,`} ${where}`;
}
