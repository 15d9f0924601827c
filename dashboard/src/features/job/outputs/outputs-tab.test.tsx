import { screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, it } from "vitest";
import { job, problem } from "@/test/fake-api";
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

const totals = (files: number, size: number, ranks = [0]) => ({ files, size, ranks });
const page = (part: Record<string, unknown>) => ({ ...list(), folders: [], totals: null, ...part });

/** Answers from pages by what is asked for beside their limit, such as `nested=false&folder=a`. */
function pages(known: Record<string, unknown>) {
  return (request: Request) => {
    const query = new URL(request.url).searchParams;
    query.delete("limit");
    return known[decodeURIComponent(query.toString())];
  };
}

it("shows a tree with totals, and previews that run nothing", async () => {
  const html = "<script>alert(1)</script>";
  const asked = await openTab({
    [`GET ${OUTPUTS}`]: pages({
      "nested=false": page({
        folders: [{ path: "a b/", files: 1, size: 70_000 }],
        items: [file("r.csv", 8)],
        totals: totals(2, 70_008),
      }),
      "nested=false&folder=a+b/": page({ items: [file("a b/x.html", 70_000)] }),
    }),
    [`GET ${OUTPUTS}/files/a%20b/x.html`]: bytes(html),
    [`GET ${OUTPUTS}/files/r.csv`]: bytes("id,note\n1,<b>\n"),
  });
  const tree = await screen.findByRole("table", { name: "Outputs" });
  expect(screen.getByText("2 files, 68.4 KiB")).toBeInTheDocument();
  expect(screen.queryByLabelText("Host")).toBe(null);
  const download = await within(tree).findByRole("link", { name: "Download a b/x.html" });
  expect(download).toHaveAttribute("href", `/api/v1${OUTPUTS}/files/a%20b/x.html`);
  await userEvent.click(within(tree).getByRole("button", { name: "x.html" }));
  expect(await screen.findByText(html)).toBeInTheDocument();
  expect(screen.getByText(/The first 64.0? KiB of 68.4 KiB/)).toBeInTheDocument();
  const preview = asked.find((request) => request.url.endsWith("x.html"));
  expect(preview?.headers.get("range")).toBe("bytes=0-65535");
  await userEvent.click(within(tree).getByRole("button", { name: "r.csv" }));
  const rows = await screen.findByRole("table", { name: "Rows of the file" });
  expect(within(rows).getByText("<b>")).toBeInTheDocument();
  await userEvent.click(within(tree).getByRole("button", { name: "a b/ 1 file" }));
  expect(within(tree).queryByRole("button", { name: "x.html" })).toBe(null);
});

it("loads a folder of many files page by page, as they are needed", async () => {
  const names = (from: number, to: number) =>
    Array.from({ length: to - from }, (_, i) => file(`s/${from + i}.txt`, 1));
  const asked = await openTab({
    [`GET ${OUTPUTS}`]: pages({
      "nested=false": page({
        folders: [{ path: "s/", files: 100_000, size: 100_000 }],
        totals: totals(100_000, 100_000),
      }),
      "nested=false&folder=s/": page({ items: names(0, 2), next_cursor: "c" }),
      "nested=false&folder=s/&cursor=c": page({ items: names(2, 500), next_cursor: "d" }),
    }),
    [`GET ${OUTPUTS}/files/s/2.txt`]: bytes("2"),
  });
  expect(await screen.findByText("100,000 files, 97.7 KiB")).toBeInTheDocument();
  expect(asked.some(({ url }) => url.includes("folder="))).toBe(false);
  await userEvent.click(screen.getByRole("button", { name: "s/ 100,000 files" }));
  expect(await screen.findByRole("button", { name: "2.txt" })).toBeInTheDocument();
  expect(screen.queryByRole("button", { name: "400.txt" })).toBe(null);
  expect(asked.some(({ url }) => url.includes("cursor=d"))).toBe(false);
  await userEvent.click(screen.getByRole("button", { name: "2.txt" }));
  expect(await screen.findByRole("region", { name: "Preview of s/2.txt" })).toBeInTheDocument();
});

it("filters on the server, and lists whole paths", async () => {
  await openTab(
    {
      [`GET ${OUTPUTS}`]: pages({
        "nested=true&find=best+csv": page({
          items: [file("runs/best/a.csv", 8)],
          totals: totals(1, 8),
        }),
        "nested=true&find=x": page({ totals: totals(0, 0) }),
      }),
    },
    "&find=best%20csv",
  );
  expect(await screen.findByRole("button", { name: "runs/best/a.csv" })).toBeInTheDocument();
  expect(screen.getByText("Found 1 file, 8 B")).toBeInTheDocument();
  const field = screen.getByRole("textbox", { name: "Filter outputs by path" });
  await userEvent.clear(field);
  await userEvent.type(field, "x{Enter}");
  expect(await screen.findByText("No path matches")).toBeInTheDocument();
});

it("shows the files of another host where several have any", async () => {
  const own = { ...file("a.txt", 3), rank: 4 };
  await openTab({
    [`GET ${OUTPUTS}`]: pages({
      "nested=false": page({ items: [file("a.txt", 8)], totals: totals(1, 8, [0, 4]) }),
      "nested=false&rank=4": page({ items: [own], totals: totals(1, 3, [0, 4]) }),
    }),
  });
  await userEvent.click(await screen.findByRole("combobox", { name: "Host" }));
  await userEvent.click(await screen.findByText("Host of rank 4", { selector: "[role=option] *" }));
  expect(await screen.findByText("1 file, 3 B")).toBeInTheDocument();
  const address = `/api/v1${OUTPUTS}`;
  expect(screen.getByRole("link", { name: "Download a.txt" })).toHaveAttribute(
    "href",
    `${address}/files/a.txt?rank=4`,
  );
  expect(screen.getByRole("link", { name: "Download all of the host (.tar)" })).toHaveAttribute(
    "href",
    `${address}.tar?rank=4`,
  );
});

it("says where files are kept from when there are none", async () => {
  await openTab({ [`GET ${OUTPUTS}`]: page({ totals: totals(0, 0, []) }) });
  expect(await screen.findByText("TRAINHALL_OUTPUTS")).toBeInTheDocument();
});

it("shows the artifacts of a run, which has no attempt", async () => {
  const run = job({ kind: "run", spec: null, attempt: 0 });
  const items = [file("model.pt", 8)];
  await openTab({ [`GET ${JOB}`]: run, [`GET ${OUTPUTS}`]: page({ items, totals: totals(1, 8) }) });
  const tree = await screen.findByRole("table", { name: "Outputs" });
  expect(within(tree).getByRole("link", { name: "Download model.pt" })).toBeVisible();
});

it("says what appears of a run that has logged no artifact", async () => {
  const run = job({ kind: "run", spec: null, attempt: 0 });
  await openTab({ [`GET ${JOB}`]: run, [`GET ${OUTPUTS}`]: page({ totals: totals(0, 0, []) }) });
  expect(
    await screen.findByText("Artifacts that the run's client logs appear here."),
  ).toBeVisible();
});

it("keeps the other files when one folder cannot be read", async () => {
  await openTab({
    [`GET ${OUTPUTS}`]: (request: Request) =>
      request.url.includes("folder=")
        ? problem(500, "Internal error", "it broke")
        : page({
            folders: [{ path: "f/", files: 1, size: 1 }],
            items: [file("a.txt", 8)],
            totals: totals(2, 9),
          }),
  });
  expect(await screen.findByText("it broke")).toBeInTheDocument();
  expect(screen.getByRole("button", { name: "a.txt" })).toBeInTheDocument();
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
