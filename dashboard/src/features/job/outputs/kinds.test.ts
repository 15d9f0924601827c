import { expect, it } from "vitest";
import { imageType, kindOf, readableJson, rowsOfCsv, textOf } from "./kinds";

const bytesOf = (text: string) => new TextEncoder().encode(text).buffer as ArrayBuffer;

it("shows files by their ending, and an SVG as text", () => {
  expect(
    ["a.PNG", "b.tsv", "c.json", "README.md", "d.svg", "e.html", "Makefile"].map(kindOf),
  ).toEqual(["image", "csv", "json", "markdown", "text", "text", "text"]);
  expect(imageType("x.jpg")).toBe("image/jpeg");
});

it("tells text from other bytes, also where a character is cut", () => {
  expect(textOf(bytesOf("größe"))).toBe("größe");
  expect(textOf(bytesOf("é").slice(0, 1))).toBe("");
  expect(textOf(bytesOf("a\0b"))).toBe(null);
  expect(textOf(new Uint8Array([0x89, 0x50, 0xff]).buffer)).toBe(null);
});

it("reads quoted fields, and no more rows than asked for", () => {
  const text = 'name,note\r\n"a ""b""","1,\n2"\n\nc,\nd,e';
  expect(rowsOfCsv(text, ",", 10)).toEqual([
    ["name", "note"],
    ['a "b"', "1,\n2"],
    ["c", ""],
    ["d", "e"],
  ]);
  expect(rowsOfCsv(text, ",", 1)).toEqual([["name", "note"]]);
  expect(rowsOfCsv("a\tb,c\n1\t2", "\t", 9)).toEqual([
    ["a", "b,c"],
    ["1", "2"],
  ]);
  expect(rowsOfCsv('a,"b', ",", 9)).toEqual([["a", '"b']]);
});

it("sets out JSON, unless numbers would change", () => {
  expect(readableJson('{"a":[1]}')).toBe('{\n  "a": [\n    1\n  ]\n}');
  for (const text of ['{"a": 12345678901234567890}', '{\n"a":1}', '{"a": NaN}'])
    expect(readableJson(text)).toBe(text);
});
