import { expect, it } from "vitest";
import type { Output } from "@/features/job/api/outputs";
import { mediaOf, parseMedia } from "./media-series";

it("groups media by name and orders steps as numbers", () => {
  const paths = [
    "media/val/samples/100.png",
    "media/val/samples/20.png",
    "outputs/media/errors/3.json",
    "results/media/errors/4.json",
    "media/notes.txt",
    "other/media/x/1.png",
  ];
  const found = mediaOf(
    paths.map((path) => ({ path }) as Output),
    "results",
  );
  expect(found.map(({ name, items }) => [name, ...items.map(({ step }) => step)])).toEqual([
    ["errors", 3, 4],
    ["val/samples", 20, 100],
  ]);
});

it("reads tables and histograms, and nothing else", () => {
  const table = { kind: "table", columns: ["a"], rows: [[1], [null]] };
  const histogram = { kind: "histogram", counts: [1], edges: [0, 1], nonfinite: 0 };
  for (const good of [table, histogram]) expect(parseMedia(JSON.stringify(good))).toEqual(good);
  for (const bad of [
    "",
    "[]",
    JSON.stringify({ ...table, rows: [1] }),
    JSON.stringify({ ...table, rows: [[{}]] }),
    JSON.stringify({ ...histogram, edges: [0] }),
  ])
    expect(parseMedia(bad)).toBe(null);
});
