import { expect, it } from "vitest";
import { pathText } from "./spec-text";

it("names the file that a script without code needs on its nodes", () => {
  const script = { path: "/lab/train.py" };
  expect(pathText({ script })).toBe(" Every node that runs it needs /lab/train.py.");
  expect(pathText({ script, code: null })).toBe(" Every node that runs it needs /lab/train.py.");
  expect(pathText({ script: { path: "train.py" }, code: "9f3c" })).toBe("");
  expect(pathText({ script: { module: "lab.train" } })).toBe("");
  expect(pathText({ script: null })).toBe("");
});
