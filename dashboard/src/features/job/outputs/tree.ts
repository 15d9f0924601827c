import type { Output, OutputPage, PageAddress } from "@/features/job/api/outputs";

/** A row, and the page that it is of. */
export type Row = { page: PageAddress; depth: number } & (Folder | File | Preview | More);

interface Folder {
  kind: "folder";
  /** With a slash at its end. */
  path: string;
  name: string;
  /** Of all files below it. */
  files: number;
  size: number;
  isOpen: boolean;
}

interface File {
  kind: "file";
  file: Output;
  name: string;
  isOpen: boolean;
}

/** What is in the file above it. */
interface Preview {
  kind: "preview";
  file: Output;
}

/** Stands for the pages of its folder that are not there yet. */
interface More {
  kind: "more";
  folder: string;
  /** How many are there. */
  pages: number;
}

interface Shown {
  isOpen: (folder: string) => boolean;
  /** How many pages of a folder are shown. */
  pagesOf: (folder: string) => number;
  /** The path of the file whose content is shown. */
  file: string | undefined;
}

/** `50.png` comes before `100.png`. */
const BY_NUMBER = new Intl.Collator("en", { numeric: true });

/** The rows of the open part of a tree: in each folder its folders first, then its files. */
export function rowsOf(
  read: (page: PageAddress) => OutputPage | undefined,
  { isOpen, pagesOf, file: chosen }: Shown,
): Row[] {
  const rows: Row[] = [];
  const visit = (folder: string, depth: number): void => {
    const nameOf = ({ path }: { path: string }) => path.slice(folder.length);
    // A folder of several pages keeps the server's order: rows that are there do not move.
    const isWhole = read({ folder, cursor: undefined })?.next_cursor === null;
    const sorted = <T extends { path: string }>(items: T[]): T[] =>
      isWhole ? items.toSorted((a, b) => BY_NUMBER.compare(a.path, b.path)) : items;
    let cursor: string | undefined;
    for (let number = 0; ; number += 1) {
      const page = { folder, cursor };
      const content = number < pagesOf(folder) ? read(page) : undefined;
      if (content === undefined) {
        rows.push({ kind: "more", page, depth, folder, pages: number });
        return;
      }
      for (const inner of sorted(content.folders)) {
        const { path, files, size } = inner;
        const open = isOpen(path);
        const name = nameOf(inner);
        rows.push({ kind: "folder", page, depth, path, name, files, size, isOpen: open });
        if (open) visit(path, depth + 1);
      }
      for (const file of sorted(content.items)) {
        const open = file.path === chosen;
        rows.push({ kind: "file", page, depth, file, name: nameOf(file), isOpen: open });
        if (open) rows.push({ kind: "preview", page, depth, file });
      }
      if (content.next_cursor === null) return;
      cursor = content.next_cursor;
    }
  };
  visit("", 0);
  return rows;
}

/** What tells rows apart. */
export function keyOf(row: Row): string {
  switch (row.kind) {
    case "folder":
      return row.path;
    case "more":
      return `more:${row.folder}`;
    default:
      return `${row.kind}:${row.file.path}`;
  }
}
