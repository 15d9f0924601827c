import { expect, it } from "vitest";
import { type CodeFile, droppedZip, MAX_BYTES, problemOf, selectionOf } from "./selection";

const file = (path: string, size = 3): CodeFile => ({ path, file: { size } as File });

it("caches, git and files of variables stay behind", () => {
  const paths = [
    "train.py",
    ".git/HEAD",
    "a/__pycache__/x.pyc",
    ".venv/bin/python",
    ".env",
    "a/.env.local",
    ".env.example",
    ".envrc",
  ]; // prettier-ignore
  const found = selectionOf(
    "lab",
    paths.map((path) => file(path)),
  );
  expect(found.files.map(({ path }) => path)).toEqual(["train.py", ".env.example"]);
  expect(found.leftOut).toEqual([".env", "a/.env.local", ".envrc"]);
  expect(found.size).toBe(6);
  expect(problemOf(found)).toBeNull();
});

it("a folder over the limit names its largest files", () => {
  const large = selectionOf("lab", [file("train.py"), file("data.bin", MAX_BYTES)]);
  expect(problemOf(large)).toContain("The largest files: data.bin (64.0 MiB), train.py (3 B).");
  const many = Array.from({ length: 20_001 }, (_, i) => file(`f${i}`));
  expect(problemOf(selectionOf("lab", many))).toContain("at most 20,000 can be sent");
  expect(problemOf(selectionOf("lab", []))).toBe("lab has no file to send.");
});

it("only a zip is taken from dropped files", () => {
  const dropOf = (...names: string[]) =>
    names.map((name) => ({
      webkitGetAsEntry: () => ({ isFile: !name.endsWith("/") }),
      getAsFile: () => ({ name }),
    })) as unknown as DataTransferItemList;
  expect(droppedZip(dropOf("folder.zip/", "notes.txt", "lab.ZIP"))?.name).toBe("lab.ZIP");
  expect(droppedZip(dropOf("folder.zip/", "notes.txt"))).toBeNull();
});
