import { screen, within } from "@testing-library/react";
import { expect, it } from "vitest";
import type { Job } from "@/shared/api/types";
import { job } from "@/test/fake-api";
import { shown } from "@/test/shown";
import { SpecDifferences } from "./spec-differences";

it("jobs of the same name are distinct, and hashes are short", () => {
  const jobs = ["a", "b"].map((letter, i) =>
    job({ id: letter.repeat(12), spec: { code: letter.repeat(64), rate: i } }),
  );
  shown(<SpecDifferences jobs={jobs as unknown as Job[]} />);
  const [head, code] = within(screen.getByRole("table", { name: "Spec differences" })).getAllByRole(
    "row",
  );
  expect(head).toHaveTextContent("Spec keydigits (aaaaaa)digits (bbbbbb)");
  expect(code).toHaveTextContent("codeaaaaaaaaaaaabbbbbbbbbbbb");
  expect(screen.getByTitle("b".repeat(64))).toBeVisible();
});
