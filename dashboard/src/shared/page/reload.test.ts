// @vitest-environment jsdom
import { afterEach, expect, it } from "vitest";
import { mayReload } from "./reload";

afterEach(() => sessionStorage.clear());

it("lets a page reload itself once, not in a loop", () => {
  expect(mayReload(1_000_000)).toBe(true);
  expect(mayReload(1_005_000)).toBe(false);
  expect(mayReload(1_040_000)).toBe(true);
});
