import { describe, expect, it } from "vitest";
import { locate, stillWrong } from "./locate";

const TEXT = `# a comment
name: digits
task:
  name: digits
  params:
    hidden: [64, -1]
script:
  env:
    A.B: "x"
training:
  steps: many
`;

function at(field: string, message = "is wrong") {
  const [found] = locate(TEXT, [{ field, message, value: null }]);
  return { line: found?.line, text: TEXT.slice(found?.from, found?.to) };
}

describe("locate", () => {
  it("finds a key and its value", () => {
    expect(at("training.steps")).toEqual({ line: 11, text: "steps: many" });
    expect(at("name")).toEqual({ line: 2, text: "name: digits" });
  });

  it("finds an item of a list", () => {
    expect(at("task.params.hidden.1")).toEqual({ line: 6, text: "-1" });
  });

  it("finds keys that hold dots", () => {
    expect(at("script.env.A.B")).toEqual({ line: 9, text: 'A.B: "x"' });
  });

  it("points to the nearest parent of a missing field", () => {
    expect(at("training.epochs")).toEqual({ line: 10, text: "training" });
    expect(at("resources.workers")).toEqual({ line: 1, text: "# a comment" });
  });

  it("points to the line that an error of the text names", () => {
    expect(at("", "not valid YAML: line 4, column 3: mapping values are not allowed")).toEqual({
      line: 4,
      text: "  name: digits",
    });
  });

  it("accepts text that is no YAML", () => {
    const problems = [{ field: "a.b", message: "x", value: null }];
    for (const text of ["", "][", "a: b: c\n\t- d", "- 1\n- 2", "just words"]) {
      expect(locate(text, problems)).toHaveLength(1);
    }
  });
});

describe("stillWrong", () => {
  const problems = ["training.steps", "script.env.A.B", "training.epochs", ""].map((field) => ({
    field,
    message: "is wrong",
    value: null,
  }));
  const left = (text: string) => stillWrong(problems, TEXT, text).map(({ field }) => field);

  it("leaves out what changed, and what names no field", () => {
    expect(left(TEXT)).toHaveLength(4);
    expect(left(TEXT.replace("many", "5"))).toEqual(["script.env.A.B", "training.epochs"]);
    expect(left(TEXT.replace('"x"', "y"))).toEqual(["training.steps", "training.epochs"]);
    expect(left(`${TEXT}  epochs: 3\n`)).toEqual(["training.steps", "script.env.A.B"]);
    expect(left("name: [")).toEqual([]);
  });
});
