import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it, vi } from "vitest";
import { open } from "@/test/open";

const SUMS = {
  jobs: 3,
  device_hours: 1234.5,
  gpu_hours: 1234.5,
  useful_hours: 1000,
  data_hours: null,
  redone_hours: 200.25,
  idle_hours: 34.25,
  not_measured_hours: 0,
  energy_kwh: null,
  metered_hours: 0,
  cost: 99.5,
};
const LINE = { ...SUMS, job_id: null, user: null, project: null };

describe("the ledger", () => {
  it("lists users or jobs of a time, with their total and a CSV", async () => {
    // Only rows with a height are on or off the screen.
    vi.spyOn(HTMLElement.prototype, "offsetHeight", "get").mockReturnValue(60);
    const asked = await open("/ledger", {
      "GET /ledger": ({ url }: Request) => {
        const by = new URL(url).searchParams.get("by");
        const line = by === "job" ? { job_id: "3f2a9c51d07b", name: "gpt", user: "maria" } : {};
        const items = [{ ...LINE, name: "maria", ...line }];
        return { by, currency: "EUR", items, next_cursor: null, total: SUMS };
      },
    });
    const row = (await screen.findByText("maria")).closest("tr") as HTMLElement;
    const cells = within(row).getAllByRole("cell");
    expect(cells.map((cell) => cell.textContent)).toEqual([
      "3",
      "1,234.50",
      "1,000.00",
      "—",
      "200.25",
      "34.25",
      "0.00",
      "—",
      "99.50",
    ]);
    expect(screen.getByText("Total").closest("tr")).toHaveTextContent("1,234.50");
    expect(document.title).toBe("Ledger · Trainhall");
    await userEvent.click(screen.getByLabelText("Jobs", { selector: "input" }));
    await userEvent.click(screen.getByLabelText("7 d"));
    expect(await screen.findByRole("link", { name: "gpt" })).toHaveAttribute(
      "href",
      "/jobs/3f2a9c51d07b",
    );
    await waitFor(() => {
      const { searchParams } = new URL(asked.at(-1)?.url ?? "");
      const age = Date.now() - Date.parse(searchParams.get("since") ?? "");
      expect([searchParams.get("by"), Math.round(age / 86_400_000)]).toEqual(["job", 7]);
    });
    const csv = screen.getByRole("link", { name: "CSV" });
    expect(csv).toHaveAttribute(
      "href",
      expect.stringMatching(/ledger\?by=job&since=.*&format=csv$/),
    );
  });
});
