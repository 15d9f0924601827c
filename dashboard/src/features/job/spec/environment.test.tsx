import { screen } from "@testing-library/react";
import { expect, it } from "vitest";
import type { Job } from "@/shared/api/types";
import { job } from "@/test/fake-api";
import { shown } from "@/test/shown";
import { Environment } from "./environment";

const LOCKED = {
  kind: "installed",
  image: null,
  python: "3.12",
  torch: "host",
  platform: "linux-x86_64",
  packages: 2,
  sha256: "ab".repeat(32),
  node: "gpu-07",
  attempt: 1,
  locked_at: "2026-01-05T09:30:00Z",
};

function show(found: object) {
  const route = "GET /training/jobs/3f2a9c51d07b/environment";
  return shown(<Environment job={job({}) as unknown as Job} />, { [route]: found });
}

it("locked packages are named, with their lock", async () => {
  show(LOCKED);
  expect(await screen.findByText(/Python 3.12, 2 locked packages, the host's torch/)).toBeVisible();
  expect(screen.getByText("Download lock")).toBeVisible();
});

it("an image is shown with its digest and nothing to download", async () => {
  show({ ...LOCKED, kind: "image", image: "lab/train@sha256:12", torch: "lock", packages: 0 });
  expect(await screen.findByText(/Image: lab\/train@sha256:12, Python 3.12; pinned/)).toBeVisible();
  expect(screen.queryByText("Download lock")).toBeNull();
});
