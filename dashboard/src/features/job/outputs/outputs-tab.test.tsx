import { screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, it } from "vitest";
import { job } from "@/test/fake-api";
import { list, open } from "@/test/open";

const JOB = "/training/jobs/3f2a9c51d07b";
const OUTPUTS = "/outputs/jobs/3f2a9c51d07b";
const file = (path: string, size: number) => ({
  path,
  size,
  sha256: path,
  modified_at: "2026-01-01T00:00:00Z",
  stored_at: "2026-01-01T00:00:00Z",
  attempt: 1,
  rank: 0,
});
const BASE = {
  [`GET ${JOB}`]: job({ finished_at: "2026-01-01T00:00:00Z", state: "completed" }),
  [`GET ${JOB}/events`]: list(),
};
const bytes = (text: string) => () => new Response(text);

async function openTab(answers: Record<string, unknown>, search = "") {
  return open(`/jobs/3f2a9c51d07b?tab=outputs${search}`, { ...BASE, ...answers });
}

it("shows a tree with totals, and previews that run nothing", async () => {
  const html = "<script>alert(1)</script>";
  const asked = await openTab({
    [`GET ${OUTPUTS}`]: list(file("a b/x.html", 70_000), file("r.csv", 8)),
    [`GET ${OUTPUTS}/files/a%20b/x.html`]: bytes(html),
    [`GET ${OUTPUTS}/files/r.csv`]: bytes("id,note\n1,<b>\n"),
  });
  const tree = await screen.findByRole("list", { name: "Outputs" });
  expect(screen.getByText("2 files, 68.4 KiB")).toBeInTheDocument();
  const download = within(tree).getByRole("link", { name: "Download a b/x.html" });
  expect(download).toHaveAttribute("href", `/api/v1${OUTPUTS}/files/a%20b/x.html`);
  await userEvent.click(within(tree).getByRole("button", { name: "x.html" }));
  expect(await screen.findByText(html)).toBeInTheDocument();
  expect(screen.getByText(/The first 64.0? KiB of 68.4 KiB/)).toBeInTheDocument();
  const preview = asked.find((request) => request.url.endsWith("x.html"));
  expect(preview?.headers.get("range")).toBe("bytes=0-65535");
  await userEvent.click(within(tree).getByRole("button", { name: "r.csv" }));
  const rows = await screen.findByRole("table", { name: "Rows of the file" });
  expect(within(rows).getByText("<b>")).toBeInTheDocument();
  await userEvent.click(within(tree).getByRole("button", { name: "a b/" }));
  expect(within(tree).queryByRole("button", { name: "x.html" })).toBe(null);
});

it("says where files are kept from when there are none", async () => {
  await openTab({ [`GET ${OUTPUTS}`]: list() });
  expect(await screen.findByText("TRAINHALL_OUTPUTS")).toBeInTheDocument();
});

it("shows the artifacts of a run, which has no attempt", async () => {
  const run = job({ kind: "run", spec: null, attempt: 0 });
  await openTab({ [`GET ${JOB}`]: run, [`GET ${OUTPUTS}`]: list(file("mlflow/model.pt", 8)) });
  const tree = await screen.findByRole("list", { name: "Outputs" });
  expect(within(tree).getByRole("link", { name: "Download mlflow/model.pt" })).toBeVisible();
});

it("says what appears of a run that has logged no artifact", async () => {
  const run = job({ kind: "run", spec: null, attempt: 0 });
  await openTab({ [`GET ${JOB}`]: run, [`GET ${OUTPUTS}`]: list() });
  expect(
    await screen.findByText("Artifacts that the run's client logs appear here."),
  ).toBeVisible();
});

it("shows media beside the curves, and goes through their steps", async () => {
  const histogram = (top: number) =>
    bytes(JSON.stringify({ kind: "histogram", counts: [1], edges: [0, top], nonfinite: 0 }));
  await open("/jobs/3f2a9c51d07b?tab=curves", {
    ...BASE,
    [`GET ${OUTPUTS}`]: list(file("media/w/3.json", 9), file("media/w/20.json", 9)),
    [`GET ${OUTPUTS}/files/media/w/3.json`]: histogram(3),
    [`GET ${OUTPUTS}/files/media/w/20.json`]: histogram(20),
  });
  expect(await screen.findByRole("img", { name: "Histogram of w, step 20" })).toBeInTheDocument();
  screen.getByRole("slider", { name: "Step of w" }).focus();
  await userEvent.keyboard("{ArrowLeft}");
  expect(await screen.findByRole("img", { name: "Histogram of w, step 3" })).toBeInTheDocument();
});
