/**
 * Output of ranks, prepared for display: colours (ECMA-48 SGR) as data, the rest as plain text.
 *
 * The result is only ever rendered as text nodes, so nothing in it can become markup. Control
 * characters and those that reorder text (Unicode TR9) are replaced by visible ones.
 */

export interface Segment {
  text: string;
  /** CSS colour, or null for the default. */
  color: string | null;
  background: string | null;
  bold: boolean;
  dim: boolean;
  italic: boolean;
  underline: boolean;
}

interface ShownLine {
  segments: Segment[];
  /** Characters that were cut from the end. */
  cut: number;
}

/** Longer lines are cut: a browser lays out a line of a megabyte for seconds. */
export const MAX_LINE = 2000;

type Style = Omit<Segment, "text">;

const PLAIN: Style = {
  color: null,
  background: null,
  bold: false,
  dim: false,
  italic: false,
  underline: false,
};

const NAMES = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];

// ECMA-48: control sequences, operating system commands, strings, and two-character escapes.
const ESCAPE =
  /\x1b(?:\[([0-?]*)[ -/]*([@-~])|\][^\x07\x1b]*(?:\x07|\x1b\\|$)|[PX^_][^\x1b]*(?:\x1b\\|$)|[ -/]*[0-~]?)/g;
// Characters that must not reach the page.
const CONTROL =
  /[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

export function showLine(raw: string, limit = MAX_LINE): ShownLine {
  // Escapes are not shown, but a line of nothing else must not take long either.
  const text = afterCarriageReturn(raw.length > limit * 8 ? raw.slice(0, limit * 8) : raw);
  const hidden = raw.length > limit * 8 ? raw.length - limit * 8 : 0;
  const segments: Segment[] = [];
  let style = PLAIN;
  let shown = 0;
  let cut = hidden;
  const add = (piece: string): void => {
    if (piece === "") return;
    const room = Math.max(0, limit - shown);
    const kept = piece.slice(0, room);
    cut += piece.length - kept.length;
    shown += kept.length;
    if (kept !== "") segments.push({ text: kept.replace(CONTROL, standIn), ...style });
  };
  let from = 0;
  for (const match of text.matchAll(ESCAPE)) {
    add(text.slice(from, match.index));
    from = match.index + match[0].length;
    if (match[2] === "m") style = applied(style, match[1] ?? "");
  }
  add(text.slice(from));
  return { segments, cut };
}

/** The pieces of a line cut where a text begins and ends, in upper or lower case; those are marked. */
export function highlighted(
  segments: readonly Segment[],
  text: string,
): (Segment & { marked: boolean })[] {
  const whole = segments.map((segment) => segment.text).join("");
  const wanted = text.toLowerCase();
  const lower = whole.toLowerCase();
  const spans: [number, number][] = [];
  // A letter whose lower case is longer would shift the offsets: then nothing is marked.
  if (wanted !== "" && lower.length === whole.length) {
    for (let at = lower.indexOf(wanted); at >= 0; at = lower.indexOf(wanted, at + wanted.length)) {
      spans.push([at, at + wanted.length]);
    }
  }
  if (spans.length === 0) return segments.map((segment) => ({ ...segment, marked: false }));
  const cuts = spans.flat();
  let begin = 0;
  return segments.flatMap((segment) => {
    const end = begin + segment.text.length;
    const inside = cuts.filter((cut) => cut > begin && cut < end);
    const edges = [begin, ...inside, end];
    const offset = begin;
    begin = end;
    return edges.slice(1).map((edge, i) => {
      const from = edges[i] ?? offset;
      const marked = spans.some(([first, last]) => from >= first && edge <= last);
      return { ...segment, text: segment.text.slice(from - offset, edge - offset), marked };
    });
  });
}

/** The line without colours and controls, for searching and copying. */
export function plainText(raw: string): string {
  return afterCarriageReturn(raw).replace(ESCAPE, "").replace(CONTROL, standIn);
}

/** A progress bar redraws its line after a carriage return: only the last drawing counts. */
function afterCarriageReturn(text: string): string {
  const line = text.replace(/[\r\n]+$/, "");
  const at = line.lastIndexOf("\r");
  return at < 0 ? line : line.slice(at + 1);
}

function standIn(character: string): string {
  const code = character.charCodeAt(0);
  if (code < 0x20) return String.fromCharCode(0x2400 + code);
  if (code === 0x7f) return "\u2421";
  return "\ufffd";
}

function applied(before: Style, parameters: string): Style {
  const codes = parameters.split(/[;:]/).map((code) => (code === "" ? 0 : Number(code)));
  let style = { ...before };
  for (let i = 0; i < codes.length; i++) {
    const code = codes[i] ?? 0;
    if (code === 0) style = { ...PLAIN };
    else if (code === 1) style.bold = true;
    else if (code === 2) style.dim = true;
    else if (code === 3) style.italic = true;
    else if (code === 4) style.underline = true;
    else if (code === 22) style = { ...style, bold: false, dim: false };
    else if (code === 23) style.italic = false;
    else if (code === 24) style.underline = false;
    else if (code >= 30 && code <= 37) style.color = named(code - 30, false);
    else if (code >= 90 && code <= 97) style.color = named(code - 90, true);
    else if (code === 39) style.color = null;
    else if (code >= 40 && code <= 47) style.background = named(code - 40, false);
    else if (code >= 100 && code <= 107) style.background = named(code - 100, true);
    else if (code === 49) style.background = null;
    else if (code === 38 || code === 48) {
      const [color, used] = extended(codes, i + 1);
      if (code === 38) style.color = color;
      else style.background = color;
      i += used;
    }
  }
  return style;
}

function named(index: number, bright: boolean): string {
  return `var(--ansi-${bright ? "bright-" : ""}${NAMES[index]})`;
}

/** The colour after 38 or 48, and how many codes it took: `5;n` or `2;r;g;b`. */
function extended(codes: number[], at: number): [string | null, number] {
  if (codes[at] === 5) return [palette(codes[at + 1]), 2];
  if (codes[at] === 2) {
    const [red, green, blue] = [codes[at + 1], codes[at + 2], codes[at + 3]].map(channel);
    return [`rgb(${red}, ${green}, ${blue})`, 4];
  }
  return [null, 0];
}

function palette(index: number | undefined): string | null {
  if (index === undefined || !Number.isInteger(index) || index < 0 || index > 255) return null;
  if (index < 8) return named(index, false);
  if (index < 16) return named(index - 8, true);
  if (index >= 232) {
    const gray = 8 + (index - 232) * 10;
    return `rgb(${gray}, ${gray}, ${gray})`;
  }
  const cube = index - 16;
  const level = (step: number): number => (step === 0 ? 0 : 55 + step * 40);
  const red = level(Math.floor(cube / 36));
  const green = level(Math.floor(cube / 6) % 6);
  return `rgb(${red}, ${green}, ${level(cube % 6)})`;
}

function channel(value: number | undefined): number {
  return Number.isFinite(value) ? Math.min(255, Math.max(0, Math.round(value ?? 0))) : 0;
}
