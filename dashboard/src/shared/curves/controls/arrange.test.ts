import { expect, it } from "vitest";
import { arranged, isPattern, movedForward, withNew } from "./arrange";

const panels = ["Loss", "Accuracy", "val/f1"].map((title) => ({
  title,
  curves: [{ name: title === "Loss" ? "eval_loss" : title.toLowerCase() }],
}));
const titles = (order: string[], pinned: string[], filter = "") =>
  arranged(panels, { order, pinned, filter }).map(({ title }) => title);

it("pinned charts come first, the others stay in their order", () => {
  const order = ["Loss", "val/f1", "Accuracy"];
  expect(titles(order, [])).toEqual(order);
  expect(titles(order, ["Accuracy", "gone", "Loss"])).toEqual(["Accuracy", "Loss", "val/f1"]);
  expect(movedForward(["a", "b", "c"], "c")).toEqual(["a", "c", "b"]);
  expect(movedForward(["a", "b"], "a")).toEqual(["a", "b"]);
});

it("a new chart comes last, and none moves", () => {
  const order = ["Loss"];
  expect(withNew(order, ["Accuracy", "Loss"])).toEqual(["Loss", "Accuracy"]);
  expect(withNew(order, [])).toBe(order);
});

it("a filter is a regular expression for titles and names", () => {
  const order = panels.map(({ title }) => title);
  expect(titles(order, [], "^eval_|F1$")).toEqual(["Loss", "val/f1"]);
  expect(titles(order, [], "nothing")).toEqual([]);
  expect(titles(order, [], "(")).toEqual(order);
  expect([isPattern("("), isPattern("a|b")]).toEqual([false, true]);
});
