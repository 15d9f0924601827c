import { expect, it } from "vitest";
import { parseSearch, stringifySearch } from "./search";

it("keeps an id that reads like a number as text", () => {
  expect(parseSearch("?from=9170762e3862&to=12&ranks=true")).toEqual({
    from: "9170762e3862",
    to: 12,
    ranks: true,
  });
  expect(stringifySearch({ from: "9170762e3862" })).toBe("?from=9170762e3862");
});

it("parses what it wrote", () => {
  for (const value of [
    "123456789012",
    "1e5",
    "a",
    "true",
    "",
    12,
    0.5,
    true,
    "007",
    "gpu-1,gpu-2",
  ]) {
    expect(parseSearch(stringifySearch({ value }))).toEqual({ value });
  }
});
