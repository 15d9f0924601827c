import { expect, it } from "vitest";
import { tarOf } from "./tar";

const text = async (blob: Blob) => new TextDecoder("latin1").decode(await blob.arrayBuffer());

it("files are packed by path, each in whole blocks", async () => {
  const files = ["b.py", "a.py"].map((path) => ({ path, file: new File(["x = 1"], path) }));
  const tar = await text(tarOf(files));
  expect(tar.length).toBe(6 * 512);
  expect(tar.slice(0, 5)).toBe("a.py\0");
  expect(tar.slice(124, 136)).toBe("00000000005\0");
  expect(tar.slice(257, 265)).toBe("ustar\0" + "00");
  expect(tar.slice(512, 517)).toBe("x = 1");
});

it("only executable files are packed as such", async () => {
  const file = new File([], "run.sh");
  const modeOf = async (isExecutable: boolean) =>
    (await text(tarOf([{ path: "run.sh", file, isExecutable }]))).slice(100, 108);
  expect(await modeOf(true)).toBe("0000755\0");
  expect(await modeOf(false)).toBe("0000644\0");
});

it("a long or foreign name has a record of its own", async () => {
  const path = `${"é".repeat(60)}/train.py`;
  const tar = await text(tarOf([{ path, file: new File([""], "train.py") }]));
  expect(tar[156]).toBe("x");
  const length = new TextEncoder().encode(` path=${path}\n`).length + 3;
  expect(tar.slice(512, 521)).toBe(`${length} path=`);
});
