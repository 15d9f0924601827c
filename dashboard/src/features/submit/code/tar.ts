import type { CodeFile } from "./selection";

const BLOCK = 512;
const MODE = 0o644;
const EXECUTABLE_MODE = 0o755;
const encoder = new TextEncoder();

/** Returns files as a tar (POSIX pax), in the order of their paths; no file is read for it. */
export function tarOf(files: readonly CodeFile[]): Blob {
  const parts: BlobPart[] = [];
  for (const { path, file, isExecutable } of [...files].sort((a, b) =>
    a.path < b.path ? -1 : 1,
  )) {
    const name = encoder.encode(path);
    if (name.length > 100 || name.length !== path.length) {
      const record = paxRecord("path", path);
      parts.push(header("pax", record.length, "x", MODE), record, padding(record.length));
    }
    const mode = isExecutable ? EXECUTABLE_MODE : MODE;
    parts.push(header(path, file.size, "0", mode), file, padding(file.size));
  }
  parts.push(new Uint8Array(2 * BLOCK));
  return new Blob(parts);
}

function header(path: string, size: number, kind: string, mode: number): Uint8Array<ArrayBuffer> {
  const block = new Uint8Array(BLOCK);
  const put = (text: string, offset: number) => block.set(encoder.encode(text), offset);
  const octal = (value: number, length: number) => value.toString(8).padStart(length, "0");
  block.set(encoder.encode(path).slice(0, 100), 0);
  put(octal(mode, 7), 100);
  put(octal(0, 7), 108);
  put(octal(0, 7), 116);
  put(octal(size, 11), 124);
  put(octal(0, 11), 136);
  put(" ".repeat(8), 148);
  put(kind, 156);
  put("ustar\0" + "00", 257);
  const sum = block.reduce((total, value) => total + value, 0);
  put(`${octal(sum, 6)}\0 `, 148);
  return block;
}

/** A record names its own length, which counts the digits of that length. */
function paxRecord(key: string, value: string): Uint8Array<ArrayBuffer> {
  const rest = encoder.encode(` ${key}=${value}\n`).length;
  let length = rest + String(rest).length;
  length = rest + String(length).length;
  return encoder.encode(`${length} ${key}=${value}\n`);
}

function padding(size: number): Uint8Array<ArrayBuffer> {
  return new Uint8Array((BLOCK - (size % BLOCK)) % BLOCK);
}
