import { saveFile } from "@/shared/save-file";
import { type Look, resolved } from "./palette";
import { isFilled, OUTLINES, type Shape } from "./shapes";

export interface Key extends Look {
  label: string;
}

/** Lengths in CSS pixels. */
const [MARGIN, TITLE, ROW, STROKE, GAP] = [12, 24, 18, 18, 6] as const;

/** Properties of a style sheet that an image of an SVG needs itself. */
const STYLES = [
  "fill",
  "stroke",
  "stroke-width",
  "stroke-dasharray",
  "opacity",
  "font-size",
  "font-family",
  "text-anchor",
  "paint-order",
];
const NO_IMAGE = "The browser cannot draw an image of this size.";
/** Least pixels of an image for a CSS pixel. */
const SCALE = 2;

/**
 * Saves a chart as PNG: its plot, in the colours of its frame, below its title and keys and above the
 * name of its horizontal axis. A plot is a canvas, or the SVGs on top of each other in `data-plot`.
 *
 * @throws An Error if the browser cannot draw it.
 */
export async function savePng(
  name: string,
  title: string,
  keys: readonly Key[],
  frame: Element,
  axis = "",
): Promise<void> {
  const canvas = frame.querySelector("canvas");
  const drawn = [...frame.querySelectorAll<SVGSVGElement>("[data-plot] > svg")];
  const layers = canvas ? [canvas] : await Promise.all(drawn.map(imageOf));
  const plot = canvas ?? drawn[0];
  const image = document.createElement("canvas");
  const pen = image.getContext("2d");
  if (plot === undefined) return;
  if (pen === null) throw new Error(NO_IMAGE);
  const { backgroundColor, color, fontFamily } = getComputedStyle(frame);
  const [bold, plain] = [`600 14px ${fontFamily}`, `12px ${fontFamily}`];
  const { clientWidth: width, clientHeight: height } = plot;
  pen.font = plain;
  const rows = keyRows(keys, width, ({ label }) => pen.measureText(label).width);
  const top = MARGIN + TITLE + rows.length * ROW;
  const below = axis === "" ? 0 : ROW;
  const scale = Math.max(SCALE, canvas ? canvas.width / width : 0);
  image.width = (width + 2 * MARGIN) * scale;
  image.height = (top + height + below + MARGIN) * scale;
  pen.scale(scale, scale);
  pen.fillStyle = backgroundColor;
  pen.fillRect(0, 0, width + 2 * MARGIN, top + height + below + MARGIN);
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
      if (key.shape === undefined) drawLine(pen, MARGIN + x, y);
      else drawMark(pen, key.shape, MARGIN + x + STROKE / 2, y);
      pen.fillText(key.label, MARGIN + x + STROKE + GAP, y);
    }
  });
  for (const layer of layers) pen.drawImage(layer, MARGIN, top, width, height);
  pen.textAlign = "center";
  pen.fillText(axis, MARGIN + width / 2, top + height + ROW / 2);
  const content = await new Promise<Blob | null>((resolve) => image.toBlob(resolve));
  if (content === null) throw new Error(NO_IMAGE);
  saveFile(name, content);
}

function drawLine(pen: CanvasRenderingContext2D, x: number, y: number): void {
  pen.beginPath();
  pen.moveTo(x, y);
  pen.lineTo(x + STROKE, y);
  pen.stroke();
}

function drawMark(pen: CanvasRenderingContext2D, shape: Shape, x: number, y: number): void {
  const [mark, color] = [new Path2D(`M${x} ${y}${OUTLINES[shape]}`), pen.fillStyle];
  pen.fillStyle = pen.strokeStyle;
  pen.stroke(mark);
  if (isFilled(shape)) pen.fill(mark);
  pen.fillStyle = color;
}

/** An SVG as an image, with the colours that style sheets give it. */
async function imageOf(svg: SVGSVGElement): Promise<HTMLImageElement> {
  const copy = svg.cloneNode(true) as SVGSVGElement;
  const copies = [copy, ...copy.querySelectorAll<SVGElement>("*")];
  [svg, ...svg.querySelectorAll<SVGElement>("*")].forEach((element, i) => {
    const style = getComputedStyle(element);
    for (const each of STYLES) copies[i]?.style.setProperty(each, style.getPropertyValue(each));
  });
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  const { clientWidth, clientHeight } = svg;
  copy.setAttribute("viewBox", `0 0 ${clientWidth} ${clientHeight}`);
  copy.setAttribute("width", String(clientWidth * SCALE));
  copy.setAttribute("height", String(clientHeight * SCALE));
  const image = new Image();
  image.src = `data:image/svg+xml,${encodeURIComponent(new XMLSerializer().serializeToString(copy))}`;
  await image.decode();
  return image;
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
