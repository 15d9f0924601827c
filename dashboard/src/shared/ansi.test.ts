import { describe, expect, it } from "vitest";
import { highlighted, MAX_LINE, plainText, showLine } from "./ansi";

const text = (raw: string) =>
  showLine(raw)
    .segments.map((segment) => segment.text)
    .join("");

describe("showLine", () => {
  it("separates colours from text", () => {
    const { segments } = showLine(
      "a \x1b[1;31mred\x1b[0m \x1b[38;5;208mor\x1b[48;2;1;2;3mange\x1b[m.",
    );
    expect(segments.map(({ text, color, bold }) => [text, color, bold])).toEqual([
      ["a ", null, false],
      ["red", "var(--ansi-red)", true],
      [" ", null, false],
      ["or", "rgb(255, 135, 0)", false],
      ["ange", "rgb(255, 135, 0)", false],
      [".", null, false],
    ]);
    expect(segments[4]?.background).toBe("rgb(1, 2, 3)");
  });

  it("keeps markup as text", () => {
    const line = "<img src=x onerror=alert(1)><script>alert(2)</script>&amp;";
    expect(text(line)).toBe(line);
  });

  it("drops hyperlinks, titles and cursor movements", () => {
    expect(text("\x1b]8;;javascript:alert(1)\x07click\x1b]8;;\x07")).toBe("click");
    expect(text("\x1b]0;title\x1b\\shown")).toBe("shown");
    expect(text("\x1b[2J\x1b[1;1Hhere\x1b(B")).toBe("here");
    expect(text("\x1b]never ended")).toBe("");
  });

  it("replaces control and bidirectional characters", () => {
    expect(text("a\x00b\x07c\x7f\x9b")).toBe("a␀b␇c␡\ufffd");
    expect(text("pay \u202eecivres")).toBe("pay \ufffdecivres");
  });

  it("shows what a progress bar drew last", () => {
    expect(text(" 10%\r 50%\r100%")).toBe("100%");
    expect(text("done\r\n")).toBe("done");
  });

  it("cuts long lines and counts the rest", () => {
    const { segments, cut } = showLine("x".repeat(1_000_000));
    expect(segments.map((segment) => segment.text.length)).toEqual([MAX_LINE]);
    expect(cut).toBe(1_000_000 - MAX_LINE);
  });

  it("handles any bytes in reasonable time", () => {
    const nasty = ["\x1b[".repeat(50_000), "\x1b]".repeat(50_000), `\x1b[${"1;".repeat(50_000)}m`];
    const begin = performance.now();
    for (const line of nasty) showLine(line);
    expect(performance.now() - begin).toBeLessThan(1000);
  });

  it("passes no output into CSS", () => {
    const { segments } = showLine("\x1b[38;2;999;-1;xm a \x1b[38;5;999m b");
    for (const { color } of segments) expect(color ?? "").toMatch(/^$|^rgb\(\d+, \d+, \d+\)$/);
  });
});

it("plainText drops colours and controls", () => {
  expect(plainText("\x1b[31mError:\x1b[0m no")).toBe("Error: no");
});

describe("highlighted", () => {
  const marked = (raw: string, text: string) =>
    highlighted(showLine(raw).segments, text).map((piece) =>
      piece.marked ? `[${piece.text}]` : piece.text,
    );

  it("marks every match, in any case, across colours", () => {
    expect(marked("Loss 1, loss 2", "LOSS")).toEqual(["[Loss]", " 1, ", "[loss]", " 2"]);
    expect(marked("a \x1b[31mlo\x1b[0mss b", "loss")).toEqual(["a ", "[lo]", "[ss]", " b"]);
    expect(marked("aaa", "aa")).toEqual(["[aa]", "a"]);
  });

  it("marks nothing without a match", () => {
    expect(marked("plain", "")).toEqual(["plain"]);
    expect(marked("plain", "x")).toEqual(["plain"]);
  });
});
