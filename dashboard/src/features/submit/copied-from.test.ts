import { expect, it } from "vitest";
import { copiedFrom } from "./copied-from";

it("names the job whose code a copy uses", () => {
  expect(copiedFrom({ name: "net", spec: { code: "9f3c", script: { path: "train.py" } } })).toBe(
    "Copied from net, with all defaults filled in. " +
      "It uses the code uploaded with net; trainhall submit uploads newer code.",
  );
});

it("mentions no code where a job has none", () => {
  const text = "Copied from net, with all defaults filled in.";
  expect(copiedFrom({ name: "net", spec: { task: { name: "digits" }, code: null } })).toBe(text);
  expect(copiedFrom({ name: "net", spec: {} })).toBe(text);
});
