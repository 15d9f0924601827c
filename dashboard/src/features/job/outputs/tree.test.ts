import { expect, it } from "vitest";
import type { Output } from "@/features/job/api/outputs";
import { matches, rowsOf } from "./tree";

const file = (path: string, size = 1) => ({ path, size }) as Output;
const FILES = [file("a", 2), file("a-b/x.csv", 3), file("a/b/c.png", 4), file("a/d.txt", 5)];

function shown(open: (folder: string) => boolean): string[] {
  return rowsOf(FILES, open).map((row) =>
    row.kind === "folder"
      ? `${row.depth} ${row.path} ${row.files} ${row.size}`
      : `${row.depth} ${row.name}`,
  );
}

it("shows folders before files, with their totals", () => {
  expect(shown(() => false)).toEqual(["0 a-b/ 1 3", "0 a/ 2 9", "0 a"]);
  expect(shown((folder) => folder === "a/")).toEqual([
    "0 a-b/ 1 3",
    "0 a/ 2 9",
    "1 a/b/ 1 4",
    "1 d.txt",
    "0 a",
  ]);
});

it("orders files by the numbers in their names", () => {
  const rows = rowsOf([file("100.png"), file("50.png")], () => true);
  expect(rows.map(({ name }) => name)).toEqual(["50.png", "100.png"]);
});

it("finds paths by words in any order", () => {
  expect(matches("runs/best/Model.pt", "model runs")).toBe(true);
  expect(matches("runs/best/Model.pt", "model csv")).toBe(false);
});
