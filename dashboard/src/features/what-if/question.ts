import type { NewNodes, Question } from "@/client";

export const FIELDS = ["add", "remove", "quotas", "priorities", "days"] as const;
type Field = (typeof FIELDS)[number];
/** What is typed into the fields, as the address keeps it; empty ones are left out. */
export type WhatIfSearch = { [field in Field]?: string | undefined };

export const DEFAULT_DAYS = "30";
const NODES = /^(\d{1,6})x(\d{1,6})(?::(cpu|cuda))?$/;
const ACCOUNT = /^(project|user):(.+)=(-?\d{1,9})$/;

export function whatIfSearch(raw: Record<string, unknown>): WhatIfSearch {
  return Object.fromEntries(
    FIELDS.filter((field) => raw[field]).map((field) => [field, String(raw[field]).slice(0, 2000)]),
  );
}

/** The question of a search, or what is wrong with its fields. */
export function questionOf(search: WhatIfSearch): {
  question: Question;
  problems: { [field in Field]?: string };
} {
  const problems: { [field in Field]?: string } = {};
  const accounts = (field: "quotas" | "priorities") => {
    const found = { projects: {}, users: {} } as Record<string, Record<string, number>>;
    for (const text of listOf(search[field])) {
      const [, kind, name = "", number] = ACCOUNT.exec(text) ?? [];
      const named = found[`${kind}s`];
      if (named) named[name] = Number(number);
      else problems[field] = `must be as in project:vision=8 or user:maria=4, not ${text}`;
    }
    return found;
  };
  const add = listOf(search.add).map((text): NewNodes => {
    const [match, nodes, devices, device] = NODES.exec(text) ?? [];
    if (match === undefined) problems.add = `must be as in 2x8 or 1x64:cpu, not ${text}`;
    return {
      nodes: Number(nodes),
      devices: Number(devices),
      device: device === "cpu" || device === "cuda" ? device : null,
    };
  });
  const days = Number(search.days ?? DEFAULT_DAYS);
  if (!(days > 0)) problems.days = "must be a number above 0";
  const question = {
    days,
    add,
    remove: listOf(search.remove),
    quotas: accounts("quotas"),
    priorities: accounts("priorities"),
  };
  return { question, problems };
}

function listOf(typed = ""): string[] {
  return typed
    .split(",")
    .map((each) => each.trim())
    .filter(Boolean);
}
