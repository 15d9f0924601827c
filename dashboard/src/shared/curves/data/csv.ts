import { saveFile } from "@/shared/save-file";
import type { CurveSeries } from "./series";

interface CsvColumn {
  name: string;
  series: CurveSeries | undefined;
}

/** Curves as comma-separated values: one row per step, one column per curve; gaps are empty. */
export function curvesCsv(columns: readonly CsvColumn[]): string {
  const rows = new Map<number, (number | null)[]>();
  columns.forEach(({ series }, at) => {
    series?.steps.forEach((step, i) => {
      const row = rows.get(step) ?? columns.map(() => null);
      row[at] = series.values[i] ?? null;
      rows.set(step, row);
    });
  });
  const head = ["step", ...columns.map(({ name }) => quoted(name))].join(",");
  const body = [...rows]
    .sort(([a], [b]) => a - b)
    .map(([step, values]) => [step, ...values.map((value) => value ?? "")].join(","));
  return `${[head, ...body].join("\n")}\n`;
}

/** Downloads comma-separated values. */
export function saveCsv(name: string, text: string): void {
  saveFile(name, new Blob([text], { type: "text/csv" }));
}

function quoted(name: string): string {
  return /[",\n]/.test(name) ? `"${name.replaceAll('"', '""')}"` : name;
}
