import { expect, it } from "vitest";
import { projectIn, withUpload } from "./spec-code";

it("the upload replaces the code of the spec alone", () => {
  expect(withUpload("name: a\nscript: {path: x}\n", "12")).toBe(
    "name: a\ncode: 12\nscript: {path: x}\n",
  );
  expect(withUpload("name: a\ncode: old # why\nscript: {}\n", "12")).toBe(
    "name: a\ncode: 12\nscript: {}\n",
  );
  const git = "code:\n  git: https://git.example/lab\n  ref: main\nname: a\n";
  expect(withUpload(git, "12")).toBe("code: 12\nname: a\n");
  expect(withUpload("", "12")).toBe("code: 12\n");
});

it("the project is that of the spec", () => {
  expect(projectIn("name: a\nproject: vision\n")).toBe("vision");
  expect(projectIn("name: a\n")).toBeNull();
  expect(projectIn("name: [")).toBeNull();
});
