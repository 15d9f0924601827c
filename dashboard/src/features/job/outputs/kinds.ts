export type Kind = "image" | "csv" | "json" | "markdown" | "text";

/** Types of images that are drawn; an SVG is shown as the text that it is. */
const IMAGES: Record<string, string> = {
  png: "image/png",
  jpg: "image/jpeg",
  jpeg: "image/jpeg",
  gif: "image/gif",
  webp: "image/webp",
};
const KINDS: Record<string, Kind> = {
  csv: "csv",
  tsv: "csv",
  json: "json",
  md: "markdown",
  markdown: "markdown",
};
const KIB = 1024;

/** Most bytes that are loaded for a preview; of text only so many are shown. */
export const LIMITS: Record<Kind, number> = {
  image: 16 * KIB * KIB,
  csv: 256 * KIB,
  json: 256 * KIB,
  markdown: 256 * KIB,
  text: 64 * KIB,
};
export const MAX_ROWS = 100;

function endingOf(path: string): string {
  return path.slice(path.lastIndexOf(".") + 1).toLowerCase();
}

/** How a file is shown, by its name; what has none that is known may be text. */
export function kindOf(path: string): Kind {
  const ending = endingOf(path);
  return ending in IMAGES ? "image" : (KINDS[ending] ?? "text");
}

export function imageType(path: string): string {
  return IMAGES[endingOf(path)] ?? "application/octet-stream";
}

/** The bytes as text; null: they are something else. The last character may be cut. */
export function textOf(content: ArrayBuffer): string | null {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(content, { stream: true });
    return text.includes("\0") ? null : text;
  } catch {
    return null;
  }
}

/** JSON on one line, set out on several; as it is where numbers would lose digits. */
export function readableJson(text: string): string {
  if (text.trim().includes("\n") || /\d{16}/.test(text)) return text;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

/** The first rows of a table in CSV or TSV (RFC 4180), the header among them. */
export function rowsOfCsv(text: string, separator: "," | "\t", most: number): string[][] {
  const rows: string[][] = [];
  const field = separator === "," ? /(?:"((?:[^"]|"")*)"|([^,\r\n]*))(,|\r?\n|$)/gy : TSV;
  field.lastIndex = 0;
  let row: string[] = [];
  for (;;) {
    const found = field.exec(text);
    if (found === null) break;
    const [whole, quoted, plain, end] = found;
    row.push(quoted === undefined ? (plain ?? "") : quoted.replaceAll('""', '"'));
    if (end === separator) continue;
    if (row.length > 1 || row[0] !== "") rows.push(row);
    row = [];
    if (rows.length >= most || end === "" || whole === "") break;
  }
  return rows;
}

const TSV = /(?:"((?:[^"]|"")*)"|([^\t\r\n]*))(\t|\r?\n|$)/gy;
