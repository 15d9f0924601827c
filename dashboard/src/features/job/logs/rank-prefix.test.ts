import { expect, it } from "vitest";
import { withoutRank } from "./rank-prefix";

it.each([
  [0, "[rank0]: ValueError: bad luck", "ValueError: bad luck"],
  [12, "[rank12]:", ""],
  [0, "[rank0]:     raise ValueError", "    raise ValueError"],
  [0, "[rank1]: of another one", "[rank1]: of another one"],
  [0, "see [rank0]: within", "see [rank0]: within"],
])("rank %i: %s", (rank, text, shown) => {
  expect(withoutRank({ rank, text })).toBe(shown);
});
