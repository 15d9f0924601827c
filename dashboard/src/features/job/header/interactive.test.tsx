import { screen } from "@testing-library/react";
import { expect, it } from "vitest";
import type { Job } from "@/shared/api/types";
import { job } from "@/test/fake-api";
import { shown } from "@/test/shown";
import { InteractiveUse } from "./interactive";

function using(idle_since: string | null): Job {
  const interactive = { idle_seconds: 1800, idle_since, ends_at: idle_since };
  return job({ interactive }) as unknown as Job;
}

it("an interactive job says how long it was idle", () => {
  // The page's clock may be some seconds behind this one.
  shown(<InteractiveUse job={using(new Date(Date.now() - 12.5 * 60_000).toISOString())} />);
  expect(screen.getByText(/idle for 12 min.*, ends at/)).toBeVisible();
  expect(screen.getByText("trainhall exec 3f2a9c51d07b")).toBeVisible();
});

it("an interactive job in use says so", () => {
  shown(<InteractiveUse job={using(null)} />);
  expect(screen.getByText(/Interactive: in use/)).toBeVisible();
});
