import { expect, it } from "vitest";
import { sectionsOf } from "./sections";

function sections(titles: string[], pinned: string[] = []) {
  const panels = titles.map((title) => ({ title }));
  const found = sectionsOf(panels, (title) => pinned.includes(title));
  return found.map(({ prefix, panels: own }) => [prefix, ...own.map(({ title }) => title)]);
}

it("charts are grouped by the prefix of their names", () => {
  expect(sections(["Loss", "train/a", "val/a", "Peak memory", "train/b/c", "/odd"])).toEqual([
    ["", "Loss", "Peak memory", "/odd"],
    ["train", "train/a", "train/b/c"],
    ["val", "val/a"],
  ]);
});

it("pinned charts stay in front", () => {
  expect(sections(["val/a", "train/a", "train/b"], ["val/a"])).toEqual([
    ["", "val/a"],
    ["train", "train/a", "train/b"],
  ]);
});
