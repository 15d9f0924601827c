import { screen, within } from "@testing-library/react";
import { describe, expect, it, vi } from "vitest";
import { shown } from "@/test/shown";
import { defaultLimits, QuotaSection } from "./quotas";

const ADA = { kind: "user", name: "ada", limit: 8, used: 8, waiting: 2 };
const BOB = { kind: "user", name: "bob", limit: null, used: 1, waiting: 0 };
const NO_OTHERS = { project: null, user: null };

const section = (answer: unknown) => shown(<QuotaSection />, { "GET /cluster/quotas": answer });

describe("quotas", () => {
  it("are shown with the devices in use of each, from every page", async () => {
    section((request: Request) =>
      new URL(request.url).searchParams.has("cursor")
        ? { items: [BOB], next_cursor: null, others: NO_OTHERS }
        : { items: [ADA], next_cursor: "next", others: NO_OTHERS },
    );
    const table = await screen.findByRole("table", { name: "Projects and users" });
    const [, ada, bob] = within(table).getAllByRole("row");
    expect(ada).toHaveTextContent("user ada8 of 82");
    expect(within(ada as HTMLElement).getByRole("meter")).toHaveAttribute("aria-valuenow", "100");
    expect(bob).toHaveTextContent("1 device, no limit");
    expect(within(bob as HTMLElement).getByRole("link", { name: "bob" })).toHaveAttribute(
      "href",
      "/jobs?query=user%3D%22bob%22",
    );
  });

  it("state the limits of those not listed", () => {
    expect(defaultLimits({ project: 16, user: null })).toBe(
      "Every other project: at most 16 devices.",
    );
    expect(defaultLimits({ project: null, user: null })).toBe("Others have no quota.");
  });

  it("are hidden while no device is held and no job waits", async () => {
    const asked = section({ items: [], next_cursor: null, others: NO_OTHERS });
    await vi.waitFor(() => expect(asked).toHaveLength(1));
    expect(screen.queryByRole("table")).toBeNull();
  });
});
