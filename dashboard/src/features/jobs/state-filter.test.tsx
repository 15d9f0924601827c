import { screen } from "@testing-library/react";
import { expect, it, vi } from "vitest";
import { shown } from "@/test/shown";
import { StateFilter } from "./state-filter";

const EVERYWHERE = { jobs: { completed: 4, failed: 1 } };
const OWN = { items: [{ value: "completed", count: 1 }] };

function shownTo(admin: boolean): Request[] {
  return shown(<StateFilter show="all" search="" query="" onChange={vi.fn()} />, {
    "GET /auth/me": { user: "ben", admin, projects: [] },
    "GET /metrics/cluster/summary": EVERYWHERE,
    "GET /training/jobs/groups": OWN,
  });
}

it("filters count the jobs that a user sees, not those of the cluster", async () => {
  shownTo(false);
  expect(await screen.findByRole("button", { name: /^All ?1$/ })).toBeVisible();
  expect(screen.getByRole("button", { name: /^Failed ?0$/ })).toBeVisible();
});

it("filters take the numbers for an admin from the summary", async () => {
  const asked = shownTo(true);
  expect(await screen.findByRole("button", { name: /^All ?5$/ })).toBeVisible();
  expect(asked.filter(({ url }) => url.includes("groups"))).toEqual([]);
});
