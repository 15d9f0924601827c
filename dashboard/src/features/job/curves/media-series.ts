import type { Output } from "@/features/job/api/outputs";
import { isRecord } from "@/shared/api/problem";

/** What a script has logged under one name, by step. */
export interface MediaSeries {
  name: string;
  items: { step: number; file: Output }[];
}

// As `training/sdk/media.py` writes them, below the outputs folder.
const MEDIA = /^media\/(.+)\/(\d{1,15})\.(?:png|json)$/;

/**
 * The media among a job's outputs, by name and step.
 *
 * @param folder the spec's `outputs.path`
 */
export function mediaOf(files: readonly Output[], folder = "."): MediaSeries[] {
  const places = ["", "outputs/", `${folder}/`];
  const series = new Map<string, MediaSeries>();
  for (const file of files) {
    const place = places.find((each) => file.path.startsWith(`${each}media/`));
    if (place === undefined) continue;
    const [, name, step] = MEDIA.exec(file.path.slice(place.length)) ?? [];
    if (name === undefined) continue;
    const own = series.get(name) ?? { name, items: [] };
    own.items.push({ step: Number(step), file });
    series.set(name, own);
  }
  for (const { items } of series.values()) items.sort((a, b) => a.step - b.step);
  return [...series.values()].sort((a, b) => a.name.localeCompare(b.name));
}

export interface TableMedia {
  kind: "table";
  columns: string[];
  rows: (string | number | boolean | null)[][];
}

export interface HistogramMedia {
  kind: "histogram";
  counts: number[];
  /** One more than counts. */
  edges: number[];
  nonfinite: number;
}

/** A table or histogram as `training/sdk/media.py` writes it; null: it is neither. */
export function parseMedia(text: string): TableMedia | HistogramMedia | null {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return null;
  }
  if (!isRecord(value)) return null;
  if (value.kind === "table" && isTable(value)) return value;
  if (value.kind === "histogram" && isHistogram(value)) return value;
  return null;
}

function isTable(value: Record<string, unknown>): value is Record<string, unknown> & TableMedia {
  const { columns, rows } = value;
  return (
    Array.isArray(columns) && columns.every(isText) && Array.isArray(rows) && rows.every(isRow)
  );
}

function isHistogram(
  value: Record<string, unknown>,
): value is Record<string, unknown> & HistogramMedia {
  const { counts, edges, nonfinite } = value;
  return (
    Array.isArray(counts) &&
    counts.every(isNumber) &&
    Array.isArray(edges) &&
    edges.every(isNumber) &&
    edges.length === counts.length + 1 &&
    isNumber(nonfinite)
  );
}

function isRow(value: unknown): boolean {
  return Array.isArray(value) && value.every((cell) => typeof cell !== "object" || cell === null);
}

function isText(value: unknown): value is string {
  return typeof value === "string";
}

function isNumber(value: unknown): value is number {
  return typeof value === "number";
}
