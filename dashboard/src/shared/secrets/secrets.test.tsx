import { screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { expect, it } from "vitest";
import { list } from "@/test/open";
import { shown } from "@/test/shown";
import { Secrets } from "./secrets";

const SECRET = {
  name: "HF_TOKEN",
  created_at: "2026-01-01T00:00:00Z",
  updated_at: "2026-01-02T00:00:00Z",
  updated_by: "maria",
};
const gone = () => new Response(null, { status: 204 });

it("lists names, sets a value and removes it", async () => {
  const asked = shown(<Secrets project="vision" />, {
    "GET /projects/vision/secrets": list(SECRET),
    "PUT /projects/vision/secrets/KEY": gone,
    "DELETE /projects/vision/secrets/HF_TOKEN": gone,
  });
  expect(await screen.findByText("HF_TOKEN")).toBeVisible();
  await userEvent.click(screen.getByRole("button", { name: "Set a secret" }));
  const dialog = within(await screen.findByRole("dialog"));
  await userEvent.type(dialog.getByLabelText("Name"), " KEY ");
  await userEvent.type(dialog.getByLabelText("Value"), "canary");
  await userEvent.click(dialog.getByRole("button", { name: "Set secret" }));
  await waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
  const put = asked.find(({ method }) => method === "PUT");
  expect(await put?.json()).toEqual({ value: "canary" });
  expect(document.body).not.toHaveTextContent("canary");
  await userEvent.click(screen.getByRole("button", { name: "Remove HF_TOKEN" }));
  await userEvent.click(await screen.findByRole("button", { name: "Remove secret" }));
  await waitFor(() => expect(asked.some(({ method }) => method === "DELETE")).toBe(true));
});

it("asks for nothing that the user may not see", () => {
  const asked = shown(<Secrets project="vision" hidden="Members see them." refused="No." />);
  expect(screen.getByText("Members see them.")).toBeVisible();
  expect(screen.getByRole("button", { name: "Set a secret" })).toHaveAccessibleDescription("No.");
  expect(asked).toEqual([]);
});
