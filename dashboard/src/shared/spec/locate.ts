import { isMap, isSeq, LineCounter, type Node, parseDocument, type Scalar } from "yaml";
import type { FieldProblem } from "@/shared/api/problem";
import { documentOf } from "./spec-text";

/** An error at a place in the text. Offsets are in UTF-16 units, lines from 1. */
export interface Located extends FieldProblem {
  from: number;
  to: number;
  line: number;
}

/**
 * Where in a YAML text each problem's field is.
 *
 * A missing field points to its nearest parent; an error of the text itself points to the line that
 * it names ("line 3, column 5"), else to the first.
 */
export function locate(text: string, problems: readonly FieldProblem[]): Located[] {
  const lines = new LineCounter();
  const root = parseDocument(text, { lineCounter: lines, keepSourceTokens: false }).contents;
  return problems.map((problem) => {
    const range = problem.field === "" ? named(text, problem.message) : find(root, problem.field);
    const [from, to] = range ?? firstLine(text);
    return { ...problem, from, to, line: lines.linePos(from).line };
  });
}

/** The problems of a text whose fields are the same in another one. */
export function stillWrong(
  problems: readonly FieldProblem[],
  before: string,
  after: string,
): readonly FieldProblem[] {
  if (before === after || problems.length === 0) return problems;
  const [old, changed] = [documentOf(before), documentOf(after)];
  if (changed === undefined) return [];
  return problems.filter(
    ({ field }) =>
      field !== "" && JSON.stringify(at(old, field)) === JSON.stringify(at(changed, field)),
  );
}

/** The value of a field; its keys may hold dots. */
function at(value: unknown, field: string): unknown {
  if (field === "") return value;
  if (typeof value !== "object" || value === null) return undefined;
  const parts = field.split(".");
  for (let length = parts.length; length > 0; length--) {
    const name = parts.slice(0, length).join(".");
    if (Object.hasOwn(value, name)) {
      return at((value as Record<string, unknown>)[name], parts.slice(length).join("."));
    }
  }
  return undefined;
}

type Range = [number, number];

/** The key of the deepest part of the field that the text has. */
function find(root: Node | null, field: string): Range | null {
  let node: Node | null = root;
  let range: Range | null = null;
  let parts = field.split(".");
  while (parts.length > 0) {
    const step = descend(node, parts);
    if (step === null) break;
    ({ node, range, rest: parts } = step);
  }
  return range;
}

interface Step {
  node: Node | null;
  range: Range | null;
  rest: string[];
}

function descend(node: Node | null, parts: string[]): Step | null {
  if (isSeq(node)) {
    const item = node.items[Number(parts[0])] as Node | undefined;
    return item ? { node: item, range: rangeOf(item), rest: parts.slice(1) } : null;
  }
  if (!isMap(node)) return null;
  // A key may hold dots itself, so the longest one that fits is taken.
  for (let length = parts.length; length > 0; length--) {
    const name = parts.slice(0, length).join(".");
    const pair = node.items.find((item) => String((item.key as Scalar | null)?.value) === name);
    if (pair) {
      const key = rangeOf(pair.key as Node | null);
      const value = pair.value as Node | null;
      const whole = isMap(value) || isSeq(value) ? null : rangeOf(value);
      const range: Range | null = key && whole ? [key[0], Math.max(key[1], whole[1])] : key;
      return { node: value, range, rest: parts.slice(length) };
    }
  }
  return null;
}

function rangeOf(node: Node | null | undefined): Range | null {
  const range = node?.range;
  return range ? [range[0], range[1]] : null;
}

function named(text: string, message: string): Range | null {
  const line = Number(/\bline (\d+)/.exec(message)?.[1]);
  if (!Number.isInteger(line) || line < 1) return null;
  const rows = text.split("\n");
  if (line > rows.length) return null;
  const from = rows.slice(0, line - 1).reduce((sum, row) => sum + row.length + 1, 0);
  return [from, from + (rows[line - 1]?.length ?? 0)];
}

function firstLine(text: string): Range {
  const end = text.indexOf("\n");
  return [0, end < 0 ? text.length : end];
}
