import { render } from "@testing-library/react";
import { expect, it } from "vitest";
import { earlierPosition, PositionSteps } from "./queue-history";

const at = (time: string) => `2026-01-01T${time}:00Z`;
const NOW = Date.parse(at("08:00"));
const HISTORY = [
  { since: at("06:00"), until: at("07:30"), position: 1200 },
  { since: at("07:30"), until: null, position: 3 },
];

it("names the position an hour ago", () => {
  expect(earlierPosition(HISTORY, NOW, 3)).toBe("an hour ago: 1,200");
});

it("names the first position of a job that waits for less than an hour", () => {
  expect(earlierPosition(HISTORY.slice(1), NOW, 2)).toBe("30 min ago: 3");
});

it("says nothing of a job that has just been queued", () => {
  expect(earlierPosition([], NOW, 1)).toBe("");
  expect(earlierPosition(HISTORY.slice(1), Date.parse(at("07:30")), 2)).toBe("");
});

it("says nothing of a job that is where it was", () => {
  expect(earlierPosition(HISTORY.slice(1), NOW, 3)).toBe("");
});

it("draws a step for each position, and a gap while the job did not wait", () => {
  const after = { since: at("07:45"), until: null, position: 1 };
  const path = (history: typeof HISTORY) =>
    render(<PositionSteps history={history} now={NOW} width={122} height={24} />)
      .container.querySelector("path")
      ?.getAttribute("d");
  expect(path(HISTORY)).toBe("M1.0 22.0V22.0H91.0V2.0H121.0");
  const [first, second] = HISTORY as [(typeof HISTORY)[0], (typeof HISTORY)[0]];
  const left = { ...second, until: at("07:40") } as unknown as (typeof HISTORY)[0];
  expect(path([first, left, after])?.match(/M/g)).toHaveLength(2);
});

it("draws a position that was sampled after the time it knows", () => {
  const [, late] = HISTORY as [(typeof HISTORY)[0], (typeof HISTORY)[0]];
  const drawn = render(
    <PositionSteps history={[late]} now={Date.parse(late.since) - 5000} width={122} height={24} />,
  );
  const path = drawn.container.querySelector("path");
  expect(path).toHaveAttribute("d", "M1.0 2.0V2.0H121.0");
});
