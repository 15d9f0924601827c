import { screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, it } from "vitest";
import { json, problem } from "@/test/fake-api";
import { list } from "@/test/open";
import { shown } from "@/test/shown";
import { searchOf, viewOf } from "./saved-views";
import { ViewsMenu } from "./views-menu";

const NAMED = { name: "nightly", created_at: "2026-01-01T00:00:00Z" };
const SEARCH = {
  show: "failed",
  query: "lr>1",
  search: undefined,
  sort: "-gpu_hours",
  columns: ["name", "user"],
  pinned: 1,
  group: "project",
} as const;

it("a view keeps the URL's state", () => {
  const search = { ...SEARCH, columns: [...SEARCH.columns] };
  const view = viewOf("nightly", search);
  expect(view.state).toEqual(["failed"]);
  expect(searchOf({ ...NAMED, ...view })).toEqual(search);
  const none = viewOf("all", {});
  expect(Object.values(searchOf({ ...NAMED, ...none })).filter((v) => v !== undefined)).toEqual([]);
});

it("views are opened, deleted and saved, and a refusal is shown", async () => {
  const view = { ...NAMED, ...viewOf("nightly", { query: "state:failed" }) };
  const detail = "there is a view 'nightly' already; use another name, or delete it first";
  const requests = shown(<ViewsMenu search={{ query: "lr>1" }} />, {
    "GET /views": list(view),
    "DELETE /views/nightly": () => new Response(null, { status: 204 }),
    "POST /views": async (request: Request) => {
      const { name } = await request.json();
      return name === "nightly" ? problem(409, "Conflict", detail) : json(view, 201);
    },
  });
  await userEvent.click(screen.getByRole("button", { name: "Views" }));
  const link = await screen.findByRole("link", { name: "nightly" });
  expect(link).toHaveAttribute("href", expect.stringContaining("query=state%3Afailed"));
  await userEvent.type(screen.getByLabelText("Save this view as"), "nightly");
  await userEvent.click(screen.getByRole("button", { name: "Save view" }));
  expect(await screen.findByRole("alert")).toHaveTextContent("use another name");
  await userEvent.click(screen.getByRole("button", { name: "Delete nightly" }));
  await waitFor(() => expect(requests.some(({ method }) => method === "DELETE")).toBe(true));
  await userEvent.type(screen.getByLabelText("Save this view as"), " 2");
  await userEvent.click(screen.getByRole("button", { name: "Save view" }));
  await waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
  const saved = requests.filter(({ method }) => method === "POST");
  expect(await saved[1]?.json()).toMatchObject({ name: "nightly 2", query: "lr>1" });
});
