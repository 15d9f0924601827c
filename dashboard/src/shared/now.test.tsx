import { MantineProvider } from "@mantine/core";
import { act, render, screen } from "@testing-library/react";
import { Profiler } from "react";
import { afterEach, expect, it, vi } from "vitest";
import { Ago } from "./ui/time";

afterEach(() => vi.useRealTimers());

it("renders a time when its text changes, not every second", async () => {
  vi.useFakeTimers({ now: Date.parse("2026-01-01T01:00:00Z") });
  const drawn = vi.fn();
  render(
    <Profiler id="ago" onRender={drawn}>
      <MantineProvider>
        <Ago value="2026-01-01T00:57:30Z" />
      </MantineProvider>
    </Profiler>,
  );
  expect(screen.getByText("2 min ago")).toBeVisible();
  const before = drawn.mock.calls.length;
  await act(() => vi.advanceTimersByTimeAsync(25_000));
  expect(drawn.mock.calls.length).toBe(before);
  await act(() => vi.advanceTimersByTimeAsync(10_000));
  expect(screen.getByText("3 min ago")).toBeVisible();
});
