import { expect, it } from "vitest";
import { limitTexts, parseLimit, parsePaths } from "./limits";

it("limits of a project in words", () => {
  expect(limitTexts({})).toEqual([]);
  expect(limitTexts({ devices: 8, priority: 0, paths: ["/shared/vision"] })).toEqual([
    "at most 8 devices",
    "priority up to 0",
    "paths under /shared/vision",
  ]);
  expect(limitTexts({ devices: null, paths: [] })).toEqual(["no paths of hosts"]);
});

it("limits are read from text", () => {
  expect(["", " 8 ", "-3", "x", "1.5"].map(parseLimit)).toEqual([
    null,
    8,
    -3,
    undefined,
    undefined,
  ]);
  expect(parsePaths(" /a \n\n/b")).toEqual(["/a", "/b"]);
  expect(parsePaths("\n")).toBeNull();
});
