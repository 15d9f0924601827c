import { useSyncExternalStore } from "react";

/** The part of a URL that says whose jobs, experiments or reports a list has. */
export interface Scope {
  /** Only the user's own; left out: those of everybody. */
  mine?: true | undefined;
  /** Only those of this project; left out: of every project that the user sees. */
  project?: string | undefined;
}

/** What belongs to a user and a project; null: it is from before there were users. */
export interface Owned {
  user: string | null;
  project: string;
}

const KEY = "trainhall-scope";
const MAX_NAME = 128;
const changed = new Set<() => void>();

/** Reads the scope of a URL; what is no scope is left out. */
export function scopeOf(raw: { mine?: unknown; project?: unknown }): Scope {
  const { mine, project } = raw;
  const isName = typeof project === "string" || typeof project === "number";
  return {
    ...(mine === true ? { mine } : {}),
    // The router reads a name of digits as a number.
    ...(isName && project !== "" ? { project: String(project).slice(0, MAX_NAME) } : {}),
  };
}

/** Whether a list of this scope may lack something that the user sees. */
export function isNarrow({ mine, project }: Scope): boolean {
  return mine === true || project !== undefined;
}

/** The parameters of a request for a list of this scope. */
export function ownerParameters({ mine, project }: Scope) {
  return { user: mine ? "me" : undefined, project };
}

/** The terms of a query for jobs of this scope; empty for all. */
export function ownerTerms({ mine, project }: Scope): string {
  return [...(mine ? ["user=me"] : []), ...(project ? [`project=${quoted(project)}`] : [])].join(
    " ",
  );
}

/** The term of a query for the jobs of a user. */
export function userTerm(user: string): string {
  return `user=${quoted(user)}`;
}

function quoted(name: string): string {
  return `"${name.replaceAll("\\", "\\\\").replaceAll('"', '\\"')}"`;
}

/** Keeps what was chosen last: links to the lists go there. */
export function rememberScope(scope: Scope): void {
  localStorage.setItem(KEY, JSON.stringify(scope));
  for (const each of changed) each();
}

/** Forgets it, as another user may log in. */
export function forgetScope(): void {
  localStorage.removeItem(KEY);
  for (const each of changed) each();
}

export function rememberedScope(): Scope {
  return parsed(localStorage.getItem(KEY));
}

export function useRememberedScope(): Scope {
  return parsed(useSyncExternalStore(subscribe, () => localStorage.getItem(KEY)));
}

function subscribe(onChange: () => void): () => void {
  changed.add(onChange);
  return () => void changed.delete(onChange);
}

function parsed(text: string | null): Scope {
  try {
    const value: unknown = JSON.parse(text ?? "{}");
    return typeof value === "object" && value !== null ? scopeOf(value) : {};
  } catch {
    return {};
  }
}
