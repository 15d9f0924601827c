import { screen, within } from "@testing-library/react";
import { describe, expect, it, vi } from "vitest";
import { shown } from "@/test/shown";
import { QuotaSection, toldOthers } from "./quotas";

const ADA = { kind: "user", name: "ada", limit: 8, used: 8, waiting: 2 };
const BOB = { kind: "user", name: "bob", limit: null, used: 1, waiting: 0 };
const NOBODY = { project: null, user: null };

const section = (answer: unknown) => shown(<QuotaSection />, { "GET /cluster/quotas": answer });

describe("quotas", () => {
  it("are told with what is held of each, from every page", async () => {
    section((request: Request) =>
      new URL(request.url).searchParams.has("cursor")
        ? { items: [BOB], next_cursor: null, others: NOBODY }
        : { items: [ADA], next_cursor: "next", others: NOBODY },
    );
    const table = await screen.findByRole("table", { name: "Projects and users" });
    const [, ada, bob] = within(table).getAllByRole("row");
    expect(ada).toHaveTextContent("user ada8 of 82");
    expect(within(ada as HTMLElement).getByRole("meter")).toHaveAttribute("aria-valuenow", "100");
    expect(bob).toHaveTextContent("1 device, no limit");
  });

  it("say what those have that are not listed", () => {
    expect(toldOthers({ project: 16, user: null })).toBe(
      "Each other project may hold 16 devices at once.",
    );
    expect(toldOthers({ project: null, user: null })).toMatch(/^Whoever has no quota/);
  });

  it("are not there where nobody holds or waits for anything", async () => {
    const asked = section({ items: [], next_cursor: null, others: NOBODY });
    await vi.waitFor(() => expect(asked).toHaveLength(1));
    expect(screen.queryByRole("table")).toBeNull();
  });
});
