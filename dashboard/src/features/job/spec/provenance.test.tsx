import { fireEvent, screen } from "@testing-library/react";
import { expect, it } from "vitest";
import { shown } from "@/test/shown";
import { ProvenanceFacts } from "./provenance";

const GIT = {
  commit: "a".repeat(40),
  branch: "main",
  remote: "javascript:alert(1)",
  dirty: true,
  diff: "@@ -1 +1 @@\n-print(1)\n+print(2)\n",
  diff_truncated: false,
};

it("commit, changes and command are shown; only web addresses are links", async () => {
  const found = { git: GIT, command: ["trainhall", "submit", "my job.yaml"], reproduces: null };
  shown(<ProvenanceFacts jobId="a" />, { "GET /training/jobs/a/provenance": found });
  expect(await screen.findByText("trainhall submit 'my job.yaml'")).toBeVisible();
  expect(screen.getByText("aaaaaaaaaaaa")).toBeVisible();
  expect(screen.queryByRole("link")).toBeNull();
  fireEvent.click(screen.getByText("Uncommitted changes"));
  expect(screen.getByText("+print(2)")).toBeVisible();
});

it("a web address of the remote is a link", async () => {
  const git = { ...GIT, remote: "https://example.org/lab.git", dirty: false, diff: null };
  shown(<ProvenanceFacts jobId="a" />, {
    "GET /training/jobs/a/provenance": { git, command: null, reproduces: null },
  });
  expect(await screen.findByRole("link")).toHaveAttribute("href", git.remote);
});

it("names the job that is reproduced, without a command or repository", async () => {
  const found = { git: null, command: null, reproduces: "3f2a" };
  shown(<ProvenanceFacts jobId="a" />, { "GET /training/jobs/a/provenance": found });
  expect(await screen.findByRole("link", { name: "3f2a" })).toBeVisible();
});

it("says that nothing is recorded", async () => {
  const found = { git: null, command: null, reproduces: null };
  shown(<ProvenanceFacts jobId="a" />, { "GET /training/jobs/a/provenance": found });
  expect(await screen.findByText(/^No repository or command is recorded/)).toBeVisible();
});
