import { MantineProvider } from "@mantine/core";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { render, screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, it } from "vitest";
import { gradientsKey } from "@/features/job/api/gradients";
import type { Job } from "@/shared/api/types";
import { fakeApi, job } from "@/test/fake-api";
import { GradientsTab } from "./gradients-tab";

const PATH = "/training/jobs/3f2a9c51d07b/gradients";
const STEP = {
  attempt: 1,
  step: 40,
  time: "2026-01-01T00:00:00Z",
  request: 1,
  has_histograms: true,
  norms: [0.5, 0],
  largest: [0.75, 0],
};
const NOTHING = { asked: 0, answered: 0, names: [], remarks: [], steps: [] };
const HISTORY = {
  asked: 1,
  answered: 1,
  names: ["0.weight", "0.bias"],
  remarks: [null, "dead"],
  steps: [STEP],
};
const ONE = {
  attempt: 1,
  step: 40,
  time: STEP.time,
  lowest_exponent: -48,
  entries: [
    {
      name: "0.weight",
      norm: 0.5,
      largest: 0.75,
      histogram: { first: 44, counts: [10, 20], zeros: 2, not_finite: 0 },
    },
    {
      name: "0.bias",
      norm: 0,
      largest: 0,
      histogram: { first: 0, counts: [], zeros: 7, not_finite: 0 },
    },
  ],
};

function show(change: Record<string, unknown> = {}) {
  const client = new QueryClient();
  render(
    <MantineProvider>
      <QueryClientProvider client={client}>
        <GradientsTab job={job(change) as unknown as Job} />
      </QueryClientProvider>
    </MantineProvider>,
  );
  return client;
}

it("shows norms by parameter and the histogram of the chosen one", async () => {
  fakeApi({ [`GET ${PATH}`]: HISTORY, [`GET ${PATH}/40`]: ONE });
  show();
  const table = await screen.findByRole("table", { name: "Gradients by parameter" });
  expect(within(table).getByText("dead")).toBeInTheDocument();
  expect(await screen.findByText("32 values, 2 zero")).toBeInTheDocument();
  await userEvent.click(within(table).getByRole("button", { name: "0.bias" }));
  expect(await screen.findByText("7 values, 7 zero")).toBeInTheDocument();
});

it("shows the histogram of a step that a later attempt repeated", async () => {
  let attempt = 1;
  const zeros = () => ({ first: 0, counts: [], zeros: attempt, not_finite: 0 });
  fakeApi({
    [`GET ${PATH}`]: () => ({ ...HISTORY, steps: [{ ...STEP, attempt }] }),
    [`GET ${PATH}/40`]: () => ({
      ...ONE,
      entries: ONE.entries.map((entry) => ({ ...entry, histogram: zeros() })),
    }),
  });
  const client = show();
  expect(await screen.findByText("1 value, 1 zero")).toBeInTheDocument();
  attempt = 2;
  await client.invalidateQueries({ queryKey: gradientsKey("3f2a9c51d07b") });
  expect(await screen.findByText("2 values, 2 zero")).toBeInTheDocument();
});

it("requests a step, and shows that it waits", async () => {
  let asked = 0;
  fakeApi({
    [`GET ${PATH}`]: () => ({ ...NOTHING, asked }),
    [`POST ${PATH}`]: () => {
      asked = 1;
      return { asked, answered: 0 };
    },
  });
  show();
  await userEvent.click(await screen.findByRole("button", { name: "Record gradients" }));
  expect(await screen.findByText("Recording the next step…")).toBeInTheDocument();
});

it("cannot be recorded for a finished job", async () => {
  fakeApi({ [`GET ${PATH}`]: NOTHING });
  show({ finished_at: "2026-01-01T00:00:00Z", allowed_commands: ["restore"] });
  expect(await screen.findByText("No gradients recorded")).toBeVisible();
  expect(screen.queryByRole("button", { name: "Record gradients" })).toBeNull();
});
