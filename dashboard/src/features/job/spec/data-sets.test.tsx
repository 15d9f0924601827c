import { screen } from "@testing-library/react";
import { expect, it } from "vitest";
import type { Job } from "@/shared/api/types";
import { job } from "@/test/fake-api";
import { shown } from "@/test/shown";
import { DataSets } from "./data-sets";

const CORPUS = {
  name: "corpus",
  path: null,
  url: "https://example.org/corpus.tar.gz",
  kind: "listing",
  sha256: "ab".repeat(32),
  bytes: 2048,
  files: 3,
  is_partial: true,
  node: "gpu-07",
  attempt: 1,
  prepared_at: "2026-01-05T09:30:00Z",
};

function jobOf(data: { name: string }[]): Job {
  return job({ spec: { data } }) as unknown as Job;
}

it("data sets are shown as the hosts found them", async () => {
  const nothing = { ...CORPUS, name: "later", sha256: null, files: null, bytes: null, node: null };
  shown(<DataSets job={jobOf([{ name: "corpus" }, { name: "later" }])} />, {
    "GET /training/jobs/3f2a9c51d07b/data": { items: [CORPUS, nothing] },
  });
  expect(await screen.findByText("3 and more")).toBeVisible();
  expect(screen.getByText("abababababab")).toBeVisible();
  expect(screen.getByText("gpu-07")).toBeVisible();
});

it("a job without data sets asks for none", () => {
  const asked = shown(<DataSets job={jobOf([])} />);
  expect(screen.queryByText("Data sets")).toBeNull();
  expect(asked).toEqual([]);
});
