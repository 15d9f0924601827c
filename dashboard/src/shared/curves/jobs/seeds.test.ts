import { expect, it } from "vitest";
import type { Job } from "@/shared/api/types";
import { seedGroups } from "./seeds";

const job = (spec: object) => ({ spec }) as unknown as Pick<Job, "spec">;

it("repeats differ in their names, seeds and predictions alone", () => {
  const first = { name: "a", training: { seed: 1 }, parallelism: { predict: true } };
  const second = { name: "b", training: { seed: 2 }, parallelism: { predict: false } };
  expect(seedGroups([job(first), job(second)])).toEqual([[0, 1]]);
});

it("a parameter of the same name is no prediction", () => {
  const params = (predict: boolean) => job({ task: { params: { predict } } });
  expect(seedGroups([params(true), params(false)])).toEqual([]);
});
