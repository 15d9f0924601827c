import { expect, it } from "vitest";
import type { LogLine } from "@/shared/api/types";
import { shiftOf, withoutOldBars } from "./shown-lines";

const line = (offset: number, text: string, rank = 0) =>
  ({ attempt: 1, rank, stream: "stderr", offset, text }) as LogLine;

it("of a progress bar only the last state is left", () => {
  const bar = (percent: number) => `train: ${String(percent).padStart(3)}%|███   | ${percent}/100`;
  const lines = [
    line(0, "begin"),
    line(1, bar(0)),
    line(2, bar(0), 1),
    line(3, `\x1b[32m${bar(40)}\x1b[0m`),
    line(4, bar(100)),
    line(5, bar(0)),
    line(6, "a warning"),
    line(7, bar(50)),
    line(8, `eval${bar(60)}`),
    line(9, "50%|no bar of the same name"),
  ];
  const offsets = (chosen?: string) => withoutOldBars(lines, chosen).map(({ offset }) => offset);
  expect(offsets()).toEqual([0, 2, 4, 5, 6, 7, 8, 9]);
  expect(offsets("1.0.stderr.3")).toContain(3);
  const stdout = { ...line(5, "printed"), stream: "stdout" } as LogLine;
  const between = [line(4, bar(10)), stdout, line(6, bar(20))];
  expect(withoutOldBars(between, undefined)).toEqual(between.slice(1));
  const plain = [line(0, "begin"), line(1, "end")];
  expect(withoutOldBars(plain, undefined)).toBe(plain);
});

it("lines keep their places when others are added or dropped above them", () => {
  const lines = Array.from({ length: 9 }, (_, i) => line(i, `${i}`));
  expect(shiftOf(lines.slice(3), lines)).toBe(3);
  expect(shiftOf(lines.slice(0, 5), lines.slice(2))).toBe(-2);
  expect(shiftOf(lines.slice(0, 5), lines)).toBe(0);
  expect(shiftOf([], lines)).toBe(0);
});
