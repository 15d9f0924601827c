import type { Output } from "@/features/job/api/outputs";

export interface Folder {
  kind: "folder";
  /** With a slash at its end. */
  path: string;
  name: string;
  depth: number;
  /** Of all files below it. */
  files: number;
  size: number;
  isOpen: boolean;
}

export interface Leaf {
  kind: "file";
  file: Output;
  name: string;
  depth: number;
}

/** `50.png` comes before `100.png`. */
const BY_NUMBER = new Intl.Collator("en", { numeric: true });

interface Node {
  folders: Map<string, Node>;
  files: Leaf[];
  count: number;
  size: number;
}

/** The rows of the open part of a tree: in each folder its folders first, then its files. */
export function rowsOf(
  files: readonly Output[],
  isOpen: (folder: string) => boolean,
): (Folder | Leaf)[] {
  const root = emptyNode();
  for (const file of files) insert(root, file);
  const rows: (Folder | Leaf)[] = [];
  const visit = (node: Node, path: string, depth: number): void => {
    for (const [name, inner] of node.folders) {
      const own = `${path}${name}/`;
      const open = isOpen(own);
      const { count, size } = inner;
      rows.push({ kind: "folder", path: own, name, depth, files: count, size, isOpen: open });
      if (open) visit(inner, own, depth + 1);
    }
    rows.push(...node.files.sort((a, b) => BY_NUMBER.compare(a.name, b.name)));
  };
  visit(root, "", 0);
  return rows;
}

function insert(root: Node, file: Output): void {
  const folders = file.path.split("/");
  const name = folders.pop() ?? file.path;
  let node = root;
  add(node, file);
  for (const part of folders) {
    const inner = node.folders.get(part) ?? emptyNode();
    node.folders.set(part, inner);
    node = inner;
    add(node, file);
  }
  node.files.push({ kind: "file", file, name, depth: folders.length });
}

function add(node: Node, file: Output): void {
  node.count += 1;
  node.size += file.size;
}

function emptyNode(): Node {
  return { folders: new Map(), files: [], count: 0, size: 0 };
}

/** Whether a path has all words of a search, in any order. */
export function matches(path: string, search: string): boolean {
  const folded = path.toLowerCase();
  return search
    .toLowerCase()
    .split(/\s+/)
    .every((word) => folded.includes(word));
}
