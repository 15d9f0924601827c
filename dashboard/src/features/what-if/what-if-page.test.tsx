import { fireEvent, screen, waitFor } from "@testing-library/react";
import { expect, test } from "vitest";
import { problem } from "@/test/fake-api";
import { open } from "@/test/open";

const WAITS = { mean: 1500, median: 1800, p95: 2900, max: 3200 };
const FOUND = {
  days: 30,
  jobs: 42,
  warning: null as string | null,
  no_longer_started: 0,
  compared: 38,
  left_out: 1,
  never_ran: 3,
  is_cut: false,
  recorded: WAITS,
  before: {
    devices: { cuda: 32 },
    waits: WAITS,
    never_started: 2,
    causes: [{ reason: "needs 40 GPUs; the whole cluster has 32 GPUs", jobs: 1 }],
    first_starts: 1,
    utilization: 81,
  },
  after: {
    devices: { cuda: 48 },
    waits: { mean: 240, median: 0, p95: 1300, max: 2400 },
    never_started: 0,
    causes: [] as { reason: string; jobs: number }[],
    first_starts: 3,
    utilization: 57,
  },
  accounts: [
    {
      kind: "user",
      name: "maria",
      jobs: 9,
      never_started_before: 2,
      never_started_after: 0,
      before: WAITS,
      after: null,
    },
  ],
  assumptions: ["nodes stay in service all the time"],
};

test("waits with other hardware are asked for", async () => {
  const asked = await open("/what-if", { "POST /cluster/what-if": FOUND });
  const add = await screen.findByLabelText("Add nodes, times their devices");
  fireEvent.change(add, { target: { value: "2x" } });
  fireEvent.click(screen.getByText("Compare"));
  await waitFor(() => expect(add).toBeInvalid());
  fireEvent.change(add, { target: { value: "2x8" } });
  fireEvent.click(screen.getByText("Compare"));
  const line = (await screen.findByText("Mean wait", { selector: "th" })).closest("tr");
  expect(line).toHaveTextContent("Mean wait25 min25 min4 min");
  expect(screen.getByText("user maria").closest("tr")).toHaveTextContent("92 → 025 min—");
  expect(screen.getByText("4 min with changes")).toBeVisible();
  const first = screen.getByText("First starts of jobs that never ran").closest("tr");
  expect(first).toHaveTextContent("ran13");
  const sent = asked.filter(({ method }) => method === "POST");
  expect(sent).toHaveLength(1);
  expect(await sent[0]?.json()).toMatchObject({
    days: 30,
    add: [{ nodes: 2, devices: 8, device: null }],
  });
});

test("jobs that would never start are named first", async () => {
  const warning = "4 of 42 jobs would never start with the changes, but start without them.";
  const causes = [{ reason: "needs 8 GPUs; the whole cluster has 4 GPUs", jobs: 4 }];
  const after = { ...FOUND.after, never_started: 6, causes };
  await open("/what-if?remove=gpu-03", {
    "POST /cluster/what-if": { ...FOUND, warning, no_longer_started: 4, after },
  });
  expect(await screen.findByRole("alert")).toHaveTextContent(warning);
  expect(screen.getByText("2 of 42 jobs now")).toBeVisible();
  expect(screen.getByText("6 with changes")).toBeVisible();
  expect(screen.getByText("4 jobs: needs 8 GPUs; the whole cluster has 4 GPUs")).toBeVisible();
  expect(screen.getAllByText("2 more for other reasons")).toHaveLength(1);
  expect(screen.getByText(/those of the 38 jobs that start both/)).toBeVisible();
});

test("a node that there is not is named", async () => {
  const error = () =>
    problem(422, "The request is not valid", "", [
      { field: "remove", message: "there is no such node in service" },
    ]);
  await open("/what-if?remove=gpu-09", { "POST /cluster/what-if": error });
  expect(await screen.findByRole("alert")).toHaveTextContent("there is no such node in service");
});
