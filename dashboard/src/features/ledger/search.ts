import type { Account } from "@/client";

export const DAYS = [1, 7, 30, 90, 365] as const;
export type Days = (typeof DAYS)[number];
export const DEFAULT_DAYS: Days = 30;
export const DEFAULT_BY: Account = "user";

export interface LedgerSearch {
  /** Left out: users. */
  by?: Account | undefined;
  /** Left out: 30. */
  days?: Days | undefined;
}

export function ledgerSearch(raw: Record<string, unknown>): LedgerSearch {
  const days = DAYS.find((value) => value === raw.days);
  return {
    ...(raw.by === "job" || raw.by === "project" ? { by: raw.by } : {}),
    ...(days === undefined || days === DEFAULT_DAYS ? {} : { days }),
  };
}
