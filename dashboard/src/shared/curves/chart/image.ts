import { saveFile } from "@/shared/save-file";
import { type Look, resolved } from "./palette";

export interface Key extends Look {
  label: string;
}

/** Lengths in CSS pixels. */
const [MARGIN, TITLE, ROW, STROKE, GAP] = [12, 24, 18, 18, 6] as const;

/** Saves a chart as PNG: its plot, in the colours of its frame, below its title and keys. */
export function savePng(name: string, title: string, keys: readonly Key[], frame: Element): void {
  const plot = frame.querySelector("canvas");
  const image = document.createElement("canvas");
  const pen = image.getContext("2d");
  if (plot === null || pen === null) return;
  const { backgroundColor, color, fontFamily } = getComputedStyle(frame);
  const [bold, plain] = [`600 14px ${fontFamily}`, `12px ${fontFamily}`];
  const { clientWidth: width, clientHeight: height } = plot;
  pen.font = plain;
  const rows = keyRows(keys, width, ({ label }) => pen.measureText(label).width);
  const top = MARGIN + TITLE + rows.length * ROW;
  const scale = plot.width / width;
  image.width = (width + 2 * MARGIN) * scale;
  image.height = (top + height + MARGIN) * scale;
  pen.scale(scale, scale);
  pen.fillStyle = backgroundColor;
  pen.fillRect(0, 0, width + 2 * MARGIN, top + height + MARGIN);
  pen.fillStyle = color;
  pen.textBaseline = "middle";
  pen.font = bold;
  pen.fillText(title, MARGIN, MARGIN + TITLE / 2 - 2);
  pen.font = plain;
  pen.lineWidth = 2;
  rows.forEach((row, at) => {
    const y = MARGIN + TITLE + (at + 0.5) * ROW;
    for (const { key, x } of row) {
      pen.strokeStyle = resolved(key.color);
      pen.setLineDash(key.dash ?? []);
      pen.beginPath();
      pen.moveTo(MARGIN + x, y);
      pen.lineTo(MARGIN + x + STROKE, y);
      pen.stroke();
      pen.fillText(key.label, MARGIN + x + STROKE + GAP, y);
    }
  });
  pen.drawImage(plot, MARGIN, top, width, height);
  image.toBlob((content) => content && saveFile(name, content));
}

/** Keys side by side, in as many rows as they need. */
export function keyRows<K>(keys: readonly K[], width: number, widthOf: (key: K) => number) {
  const rows: { key: K; x: number }[][] = [];
  let end = Number.POSITIVE_INFINITY;
  for (const key of keys) {
    const needed = STROKE + GAP + widthOf(key);
    if (end + needed > width) {
      rows.push([]);
      end = 0;
    }
    rows.at(-1)?.push({ key, x: end });
    end += needed + 2 * MARGIN;
  }
  return rows;
}
