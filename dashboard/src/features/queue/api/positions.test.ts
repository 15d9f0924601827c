import { expect, test } from "vitest";
import { MOST_KEPT, Positions } from "./positions";

const at = (second: number) => new Date(Date.UTC(2026, 0, 1, 0, 0, second)).toISOString();
const row = (since: number, until: number | null, position: number) => ({
  since: at(since),
  until: until === null ? null : at(until),
  position,
});
const entry = (job_id: string, ...history: ReturnType<typeof row>[]) => ({ job_id, history });

test("changes are added to what is known", () => {
  const positions = new Positions();
  positions.begin();
  expect(positions.since()).toBeUndefined();
  positions.add([entry("a", row(0, 10, 5), row(10, null, 4)), entry("b", row(10, null, 7))], true);
  expect(positions.since()).toBe(at(10));
  positions.begin();
  const changed = entry("a", row(10, 20, 4), row(20, null, 2));
  expect(positions.add([changed, entry("b")], false)).toEqual([
    entry("a", row(0, 10, 5), row(10, 20, 4), row(20, null, 2)),
    entry("b", row(10, null, 7)),
  ]);
  expect(positions.since()).toBe(at(20));
});

test("the page that was read first says since when changes are missing", () => {
  const positions = new Positions();
  positions.begin();
  positions.add([entry("a", row(0, null, 1))], true);
  positions.add([entry("b", row(0, 10, 9), row(10, null, 8))], true);
  expect(positions.since()).toBe(at(0));
});

test("a job that left the queue holds nothing back", () => {
  const positions = new Positions();
  positions.begin();
  positions.add([entry("a", row(0, null, 1))], true);
  positions.add([entry("b", row(10, null, 2))], true);
  positions.begin();
  positions.add([entry("b")], false);
  positions.begin();
  expect(positions.has("a")).toBe(false);
  expect(positions.since()).toBe(at(10));
});

test("a long history is read as a whole again", () => {
  const positions = new Positions();
  for (let second = 0; second <= MOST_KEPT; second++) {
    positions.begin();
    expect(positions.has("a")).toBe(second > 0);
    positions.add([entry("a", row(second, null, second))], second === 0);
  }
  positions.begin();
  expect(positions.has("a")).toBe(false);
  expect(positions.since()).toBeUndefined();
});
