import { expect, it } from "vitest";
import { firstTab } from "./tabs";

it("opens where there is something to see", () => {
  expect(firstTab({ state: "running", step: 0, spec: {} })).toBe("curves");
  expect(firstTab({ state: "failed", step: 12, spec: {} })).toBe("curves");
  expect(firstTab({ state: "failed", step: 0, spec: {} })).toBe("timeline");
  expect(firstTab({ state: "failed", step: 0, spec: { script: "train.py" } })).toBe("logs");
});
