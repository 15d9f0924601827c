import { expect, test } from "vitest";
import { questionOf, whatIfSearch } from "./question";

test("fields become a question", () => {
  const { question, problems } = questionOf({
    add: "2x8, 1x64:cpu",
    remove: "gpu-03",
    quotas: "project:vision=8",
    priorities: "user:maria=-10,project:vision=1",
  });
  expect(problems).toEqual({});
  expect(question).toEqual({
    days: 30,
    add: [
      { nodes: 2, devices: 8, device: null },
      { nodes: 1, devices: 64, device: "cpu" },
    ],
    remove: ["gpu-03"],
    quotas: { projects: { vision: 8 }, users: {} },
    priorities: { projects: { vision: 1 }, users: { maria: -10 } },
  });
});

test("each wrong field is named", () => {
  const { problems } = questionOf({
    add: "2x",
    quotas: "vision=8",
    priorities: "user:",
    days: "x",
  });
  expect(Object.keys(problems).sort()).toEqual(["add", "days", "priorities", "quotas"]);
  expect(problems.add).toBe("must be as in 2x8 or 1x64:cpu, not 2x");
});

test("the address keeps what is typed", () => {
  expect(whatIfSearch({ add: "2x8", days: 7, other: 1, remove: "" })).toEqual({
    add: "2x8",
    days: "7",
  });
});
