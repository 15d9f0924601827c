import { fireEvent, screen, within } from "@testing-library/react";
import { expect, it } from "vitest";
import type { Job } from "@/shared/api/types";
import { job } from "@/test/fake-api";
import { shown } from "@/test/shown";
import { PackageDifferences } from "./package-differences";

const BASE = {
  attempt: 1,
  host: "gpu-07",
  python: "3.12.3",
  os: "Linux",
  cuda: null,
  driver: null,
};

it("identical packages are listed", async () => {
  const same = { ...BASE, packages: { numpy: "2.3.3" } };
  const answers = { "GET /training/jobs/a/packages": same, "GET /training/jobs/b/packages": same };
  const jobs = ["a", "b"].map((id) => job({ id, name: id }));
  shown(<PackageDifferences jobs={jobs as unknown as Job[]} />, answers);
  fireEvent.click(await screen.findByText("Identical packages (3)"));
  expect(screen.getByRole("row", { name: "numpy 2.3.3 2.3.3" })).toBeVisible();
  expect(screen.queryByRole("switch")).toBeNull();
});

it("only packages that differ are shown, until all are asked for", async () => {
  const answers = {
    "GET /training/jobs/a/packages": { ...BASE, packages: { numpy: "2.3.3", torch: "2.12.0" } },
    "GET /training/jobs/b/packages": { ...BASE, packages: { numpy: "2.3.3", torch: "2.11.0" } },
    "GET /training/jobs/c/packages": { ...BASE, attempt: null, python: null, packages: {} },
  };
  const jobs = ["a", "b", "c"].map((id) => job({ id, name: id }));
  shown(<PackageDifferences jobs={jobs as unknown as Job[]} />, answers);
  fireEvent.click(await screen.findByText("1 package difference; 1 job reported none"));
  const table = screen.getByRole("table", { name: "Packages" });
  const rows = () =>
    within(table)
      .getAllByRole("row")
      .map((row) => row.textContent);
  expect(rows()).toEqual(["Packageab", "torch2.12.02.11.0"]);
  fireEvent.click(screen.getByRole("switch", { name: "All packages" }));
  expect(rows().slice(1)).toEqual([
    "Python3.12.33.12.3",
    "SystemLinuxLinux",
    "numpy2.3.32.3.3",
    "torch2.12.02.11.0",
  ]);
});
