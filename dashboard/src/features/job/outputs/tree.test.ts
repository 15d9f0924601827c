import { expect, it } from "vitest";
import type { Output, OutputPage, PageAddress } from "@/features/job/api/outputs";
import { keyOf, type Row, rowsOf } from "./tree";

const file = (path: string, size = 1) => ({ path, size }) as Output;
const folder = (path: string, files: number, size: number) => ({ path, files, size });
const page = (part: Partial<OutputPage>): OutputPage => ({
  items: [],
  folders: [],
  totals: null,
  next_cursor: null,
  ...part,
});

/** Reads pages by their cursors or else their folders. */
function readerOf(pages: Record<string, OutputPage>) {
  return ({ folder, cursor }: PageAddress) => pages[cursor ?? folder];
}

const ALL = {
  isOpen: () => true,
  pagesOf: () => 1,
  file: undefined,
};

function textOf(row: Row): string {
  switch (row.kind) {
    case "folder":
      return `${row.depth} ${row.name} ${row.files} ${row.size}`;
    case "file":
      return `${row.depth} ${row.name}`;
    case "preview":
      return `preview of ${row.file.path}`;
    default:
      return `${row.depth} more of ${row.folder} after ${row.pages}`;
  }
}

it("shows folders before files, and reads those that are open", () => {
  const read = readerOf({
    "": page({ folders: [folder("a-b/", 1, 3), folder("a/", 2, 9)], items: [file("a")] }),
    "a/": page({ folders: [folder("a/b/", 1, 4)], items: [file("a/d.txt")] }),
  });
  expect(rowsOf(read, { ...ALL, isOpen: () => false }).map(textOf)).toEqual([
    "0 a-b/ 1 3",
    "0 a/ 2 9",
    "0 a",
  ]);
  const rows = rowsOf(read, { ...ALL, isOpen: (path) => path === "a/", file: "a/d.txt" });
  expect(rows.map(textOf)).toEqual([
    "0 a-b/ 1 3",
    "0 a/ 2 9",
    "1 b/ 1 4",
    "1 d.txt",
    "preview of a/d.txt",
    "0 a",
  ]);
  expect(new Set(rows.map(keyOf)).size).toBe(rows.length);
});

it("orders files by the numbers in their names", () => {
  const read = readerOf({ "": page({ items: [file("100.png"), file("50.png")] }) });
  expect(rowsOf(read, ALL).map(textOf)).toEqual(["0 50.png", "0 100.png"]);
});

it("shows as many pages as are wanted, in the order of the server", () => {
  const read = readerOf({
    "": page({ items: [file("100"), file("50")], next_cursor: "second" }),
    second: page({ items: [file("7")], next_cursor: "third" }),
  });
  const first = ["0 100", "0 50"];
  expect(rowsOf(read, ALL).map(textOf)).toEqual([...first, "0 more of  after 1"]);
  expect(rowsOf(read, { ...ALL, pagesOf: () => 3 }).map(textOf)).toEqual([
    ...first,
    "0 7",
    "0 more of  after 2",
  ]);
});
