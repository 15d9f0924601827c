import { screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, it, vi } from "vitest";
import { useSummary } from "@/shared/api/cluster";
import { shown } from "@/test/shown";
import { Command } from "./command";

const onClick = vi.fn();

function Page({ refused }: { refused?: string }) {
  useSummary();
  return <Command label="Pause" refused={refused} onClick={onClick} />;
}

it("a command is refused with its reason", async () => {
  shown(<Page refused="It is completed." />, { "GET /metrics/cluster/summary": {} });
  const button = screen.getByRole("button", { name: "Pause" });
  expect(button).toHaveAccessibleDescription("It is completed.");
  await userEvent.click(button);
  expect(onClick).not.toHaveBeenCalled();
});

it("a command is refused while the coordinator is unreachable", async () => {
  let away = true;
  const answer = () => {
    if (away) throw new TypeError("Failed to fetch");
    return {};
  };
  shown(<Page />, { "GET /metrics/cluster/summary": answer });
  const button = screen.getByRole("button", { name: "Pause" });
  await vi.waitFor(() =>
    expect(button).toHaveAccessibleDescription(/^The coordinator is unreachable/),
  );
  await userEvent.click(button);
  expect(onClick).not.toHaveBeenCalled();
  away = false;
  await vi.waitFor(() => expect(button).not.toHaveAttribute("aria-disabled", "true"), 10_000);
  await userEvent.click(button);
  expect(onClick).toHaveBeenCalledOnce();
});
