import { gzipSync } from "node:zlib";
import { expect, it } from "vitest";
import { fakeApi, problem } from "@/test/fake-api";
import { readTrace } from "./traces";

const FILE = "GET /outputs/jobs/3f2a/files/profiles/1/rank-0.json.gz";

const read = (answer: unknown, most?: number) => {
  fakeApi({ [FILE]: answer });
  return readTrace("3f2a", "profiles/1/rank-0.json.gz", new AbortController().signal, most);
};

const packed = (text: string) => new Response(new Uint8Array(gzipSync(text)));

it("reads the JSON of a compressed trace", async () => {
  expect(await read(packed('{"traceEvents":[]}'), 18)).toEqual({ traceEvents: [] });
});

it("stops at the limit of a trace's size", async () => {
  await expect(read(packed('{"traceEvents":[]}'), 17)).rejects.toThrow(
    "more than 17 B before compression: download it",
  );
});

it("says why a trace cannot be read", async () => {
  await expect(read(problem(404, "Not found", "no such file"))).rejects.toThrow("no such file");
  await expect(read(new Response("no gzip"))).rejects.toThrow("incorrect header check");
  await expect(read(packed("no JSON"))).rejects.toThrow("not valid JSON");
});
