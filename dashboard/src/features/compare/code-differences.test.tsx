import { fireEvent, screen } from "@testing-library/react";
import { expect, it } from "vitest";
import type { Job } from "@/shared/api/types";
import { job } from "@/test/fake-api";
import { shown } from "@/test/shown";
import { CodeDifferences } from "./code-differences";

const jobOf = (id: string, code: string | object | null) =>
  job({ id, name: id, spec: { name: id, code } }) as unknown as Job;

it("files that differ are shown with their diffs", async () => {
  const items = [
    { path: "train.py", change: "changed", diff: "-lr = 0.1\n+lr = 0.2" },
    { path: "logo.png", change: "added", diff: null },
  ];
  const answers = { "GET /training/jobs/a/code/diff": { identical: false, items, commits: [] } };
  const jobs = [jobOf("a", "1"), jobOf("b", "2"), jobOf("c", null)];
  shown(<CodeDifferences jobs={jobs} />, answers);
  fireEvent.click(await screen.findByText("2 code differences"));
  expect(screen.getByText("+lr = 0.2")).toBeVisible();
  expect(screen.getByText(/added, binary or large/)).toBeVisible();
});

it("code in git is compared by its commit", async () => {
  const found = { identical: null, items: [], commits: ["a".repeat(40), "b".repeat(40)] };
  const code = { git: "https://git.example/lab", ref: "main" };
  shown(<CodeDifferences jobs={[jobOf("a", code), jobOf("b", code)]} />, {
    "GET /training/jobs/a/code/diff": found,
  });
  fireEvent.click(await screen.findByText("Code of different commits"));
  expect(screen.getByText("aaaaaaaaaaaa and bbbbbbbbbbbb")).toBeVisible();
});

it("says that an upload and a commit cannot be compared", async () => {
  const found = { identical: null, items: [], commits: [null, "b".repeat(40)] };
  const jobs = [jobOf("a", "1"), jobOf("b", { git: "https://git.example/lab" })];
  shown(<CodeDifferences jobs={jobs} />, { "GET /training/jobs/a/code/diff": found });
  fireEvent.click(await screen.findByText("Code that cannot be compared"));
  expect(screen.getByText("no known commit and bbbbbbbbbbbb")).toBeVisible();
});
