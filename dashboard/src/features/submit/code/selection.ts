import { bytes, count } from "@/shared/format";

/** A file by its path in the folder of the code, and its size in bytes. */
export interface Sized {
  path: string;
  file: { size: number };
}

export interface CodeFile extends Sized {
  file: File;
  /** Known of the files of a zip alone. */
  isExecutable?: boolean;
}

export interface Selection<F extends Sized = CodeFile> {
  /** Name of the folder, or of the zip. */
  folder: string;
  files: F[];
  size: number;
  /** Files of variables, which may hold secrets. */
  leftOut: string[];
}

/** The limits of the server, which checks them again. */
export const MAX_BYTES = 64 * 1024 * 1024;
export const MAX_FILES = 20_000;
const SHOWN = 5;
// macOS adds __MACOSX to a zip: attributes of the files, no files.
const NEVER = new Set([".git", "__pycache__", ".venv", "venv", "node_modules", "__MACOSX"]);
const ENV_FILE = /^(\.env(\..+)?|\.envrc)$/;
const ENV_EXAMPLE = /\.(example|sample|template|dist)$/;

/** Returns what of a folder is sent: all but caches, virtual environments, git and variables. */
export function selectionOf<F extends Sized>(folder: string, found: readonly F[]): Selection<F> {
  const wanted = found.filter(({ path }) => !isNeverSent(path));
  const files = wanted.filter(({ path }) => !isEnvFile(path));
  const leftOut = wanted.filter(({ path }) => isEnvFile(path)).map(({ path }) => path);
  const size = files.reduce((sum, { file }) => sum + file.size, 0);
  return { folder, files, size, leftOut };
}

export function isNeverSent(path: string): boolean {
  return path.split("/").some((part) => NEVER.has(part));
}

function isEnvFile(path: string): boolean {
  const name = path.slice(path.lastIndexOf("/") + 1);
  return ENV_FILE.test(name) && !ENV_EXAMPLE.test(name);
}

/** Why a selection cannot be sent; null: it can. */
export function problemOf({ folder, files, size }: Selection<Sized>): string | null {
  if (files.length === 0) return `${folder} has no file to send.`;
  const advice = "Choose a smaller folder, or keep data elsewhere.";
  if (files.length > MAX_FILES) {
    return `${folder} has ${count(files.length)} files, but at most ${count(MAX_FILES)} can be sent. ${advice}`;
  }
  if (size > MAX_BYTES) {
    const largest = [...files].sort((a, b) => b.file.size - a.file.size).slice(0, SHOWN);
    const named = largest.map(({ path, file }) => `${path} (${bytes(file.size)})`).join(", ");
    return `${folder} has ${bytes(size)}, but at most ${bytes(MAX_BYTES)} can be sent. ${advice} The largest files: ${named}.`;
  }
  return null;
}

/** Returns the files of a folder that was chosen in a file dialog. */
export function chosen(list: FileList): Selection {
  const files = [...list].map((file) => ({ path: file.webkitRelativePath || file.name, file }));
  const folder = files[0]?.path.split("/")[0] ?? "The folder";
  return selectionOf(
    folder,
    files.map(({ path, file }) => ({ path: path.slice(path.indexOf("/") + 1), file })),
  );
}

/** Returns the zip that was dropped; null: none. */
export function droppedZip(items: DataTransferItemList): File | null {
  const files = [...items].filter((item) => item.webkitGetAsEntry()?.isFile);
  const found = files.map((item) => item.getAsFile());
  return found.find((file) => file && /\.zip$/i.test(file.name)) ?? null;
}

/** Returns the files of a folder that was dropped; null: it was no folder. */
export async function dropped(items: DataTransferItemList): Promise<Selection | null> {
  // Only until the event handler ends the entries can be asked for.
  const entry = [...items].map((item) => item.webkitGetAsEntry()).find((each) => each?.isDirectory);
  if (!entry) return null;
  const files: CodeFile[] = [];
  await read(entry as FileSystemDirectoryEntry, "", files);
  return selectionOf(entry.name, files);
}

async function read(folder: FileSystemDirectoryEntry, below: string, to: CodeFile[]) {
  const reader = folder.createReader();
  for (;;) {
    const entries = await new Promise<FileSystemEntry[]>((resolve, reject) =>
      reader.readEntries(resolve, reject),
    );
    if (entries.length === 0) return;
    for (const entry of entries) {
      const path = `${below}${entry.name}`;
      if (NEVER.has(entry.name)) continue;
      if (entry.isDirectory) await read(entry as FileSystemDirectoryEntry, `${path}/`, to);
      else to.push({ path, file: await fileOf(entry as FileSystemFileEntry) });
    }
  }
}

function fileOf(entry: FileSystemFileEntry): Promise<File> {
  return new Promise((resolve, reject) => entry.file(resolve, reject));
}
