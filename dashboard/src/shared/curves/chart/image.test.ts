import { expect, test } from "vitest";
import { keyRows } from "./image";

test("keys of an image are in rows that fit its width, each in one at least", () => {
  const rows = keyRows(["a", "b", "c", "wide"], 150, (key) => (key === "wide" ? 500 : 30));
  expect(rows.map((row) => row.map(({ key }) => key))).toEqual([["a", "b"], ["c"], ["wide"]]);
  expect(rows[0]?.[1]?.x).toBeGreaterThan(30);
  expect(keyRows([], 150, () => 30)).toEqual([]);
});
