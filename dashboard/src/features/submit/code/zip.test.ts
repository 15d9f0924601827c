import {
  BlobReader,
  BlobWriter,
  ZipWriter,
  type ZipWriterAddDataOptions,
} from "@zip.js/zip.js/lib/zip-core-native.js";
import { expect, it } from "vitest";
import { MAX_BYTES } from "./selection";
import { unzipped } from "./zip";

interface Given extends ZipWriterAddDataOptions {
  text?: string;
}

/** Returns a zip whose files have the given texts, "x = 1" unless they say so. */
async function zipOf(files: Record<string, Given>): Promise<File> {
  const writer = new ZipWriter(new BlobWriter(), { useWebWorkers: false, dataDescriptor: false });
  for (const [path, { text = "x = 1", ...options }] of Object.entries(files)) {
    const content = path.endsWith("/") ? undefined : new BlobReader(new Blob([text]));
    await writer.add(path, content, options);
  }
  return new File([await writer.close()], "lab.zip");
}

/** Returns the zip with other bytes in place of some, which are as many. */
async function altered(zip: File, from: Uint8Array, to: Uint8Array): Promise<File> {
  const bytes = Buffer.from(await zip.arrayBuffer());
  let count = 0;
  for (let at = bytes.indexOf(from); at >= 0; at = bytes.indexOf(from, at + to.length)) {
    bytes.set(to, at);
    count += 1;
  }
  expect(count).toBeGreaterThan(0);
  return new File([bytes], zip.name);
}

const encoded = (text: string) => new TextEncoder().encode(text);

const uint32 = (value: number) => new Uint8Array(Uint32Array.of(value).buffer);

it("a single top folder is left away, and caches stay behind", async () => {
  const zip = await zipOf({
    "lab/": {},
    "lab/train.py": { text: "print(1)\n".repeat(999) },
    "lab/src/é.py": { level: 0, unixMode: 0o100755 },
    "lab/.env": {},
    "lab/.git/HEAD": {},
    "lab/.venv/bin/python": { unixMode: 0o120777 },
    "__MACOSX/lab/._train.py": {},
  });
  const found = await unzipped(zip);
  expect(found.folder).toBe("lab.zip (its folder lab)");
  expect(found.files.map(({ path }) => path)).toEqual(["train.py", "src/é.py"]);
  expect(found.files.map(({ isExecutable }) => isExecutable)).toEqual([false, true]);
  expect(found.leftOut).toEqual([".env"]);
  expect(await found.files[0]?.file.text()).toBe("print(1)\n".repeat(999));
  expect(await found.files[1]?.file.text()).toBe("x = 1");
});

it("several top names stay as they are", async () => {
  const found = await unzipped(await zipOf({ "train.py": {}, "src/a.py": {} }));
  expect(found.folder).toBe("lab.zip");
  expect(found.files.map(({ path }) => path)).toEqual(["train.py", "src/a.py"]);
});

it("backslashes of a zip from Windows separate folders", async () => {
  const found = await unzipped(
    await altered(await zipOf({ "lab/a.py": {} }), encoded("lab/a.py"), encoded("lab\\a.py")),
  );
  expect(found.files.map(({ path }) => path)).toEqual(["a.py"]);
  const outside = await altered(
    await zipOf({ "xx/a.py": {} }),
    encoded("xx/a.py"),
    encoded("..\\a.py"),
  );
  await expect(unzipped(outside)).rejects.toThrow("is no path: ../a.py.");
});

it.each(["../train.py", "/etc/train.py", "C:/train.py", "a/../../b.py", "a//b.py"])(
  "a file outside of the folder is refused: %s",
  async (path) => {
    const safe = "x".repeat(path.length);
    const zip = await altered(await zipOf({ [safe]: {} }), encoded(safe), encoded(path));
    await expect(unzipped(zip)).rejects.toThrow(
      `outside of its folder, or with a name that is no path: ${path}.`,
    );
  },
);

it("an encrypted file is refused", async () => {
  const zip = await zipOf({ "lab/train.py": { password: "secret" } });
  await expect(unzipped(zip)).rejects.toThrow("train.py is encrypted. Make a zip without a");
});

it("a link is refused", async () => {
  const zip = await zipOf({ "train.py": { text: "/etc/passwd", unixMode: 0o120777 } });
  await expect(unzipped(zip)).rejects.toThrow("train.py is a symbolic link.");
});

it("a name that comes twice is refused", async () => {
  const zip = await altered(
    await zipOf({ "a.py": {}, "b.py": {} }),
    encoded("b.py"),
    encoded("a.py"),
  );
  await expect(unzipped(zip)).rejects.toThrow("lab.zip has a.py twice.");
});

it("an empty zip is refused", async () => {
  await expect(unzipped(await zipOf({ "lab/": {} }))).rejects.toThrow("has no file to send.");
});

it("a damaged zip is refused", async () => {
  const zip = await zipOf({ "train.py": { level: 0 } });
  for (const file of [zip.slice(0, zip.size - 30), "no zip", ""]) {
    const damaged = new File([file], zip.name);
    await expect(unzipped(damaged)).rejects.toThrow("lab.zip is damaged, or is no zip (");
  }
  const changed = await altered(zip, encoded("x = 1"), encoded("x = 2"));
  await expect(unzipped(changed)).rejects.toThrow("train.py is damaged in the zip (");
});

it("a declared size over the limit is refused", async () => {
  const zip = await altered(
    await zipOf({ "big.bin": { level: 0 }, "a.py": { text: "" } }),
    uint32(5),
    uint32(MAX_BYTES + 1),
  );
  await expect(unzipped(zip)).rejects.toThrow("The largest files: big.bin (64.0 MiB), a.py (0 B).");
});

it("a file that unpacks to more than declared is stopped", async () => {
  const real = 8 * 1024 * 1024;
  const bomb = await zipOf({ "bomb.bin": { text: "\0".repeat(real) } });
  expect(bomb.size).toBeLessThan(real / 100);
  const zip = await altered(bomb, uint32(real), uint32(7));
  await expect(unzipped(zip)).rejects.toThrow(
    "bomb.bin unpacks to another size than the zip declares.",
  );
});
