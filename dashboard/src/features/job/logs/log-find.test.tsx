import { MantineProvider } from "@mantine/core";
import { render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { useState } from "react";
import { expect, it } from "vitest";
import type { LogLine } from "@/shared/api/types";
import type { JobLive } from "@/shared/live/job-live";
import { fakeApi } from "@/test/fake-api";
import { LogFind } from "./log-find";

const LINES = [0, 40, 80].map(
  (offset) => ({ attempt: 1, rank: 0, stream: "stdout", offset, text: "saved" }) as LogLine,
);

const live = { logVersion: { subscribe: () => () => undefined } } as unknown as JobLive;
const ALL = {};

function Finding({ onChoose }: { onChoose: (line: string) => void }) {
  const [find, setFind] = useState("");
  const [chosen, setChosen] = useState<string>();
  return (
    <MantineProvider>
      <LogFind
        jobId="job"
        live={live}
        filter={ALL}
        find={find}
        chosen={chosen}
        onFind={setFind}
        onChoose={(line) => {
          setChosen(line);
          onChoose(line);
        }}
      />
    </MantineProvider>
  );
}

it("steps through the matches by Enter, even when pressed at once", async () => {
  fakeApi({
    "GET /training/jobs/job/logs": {
      items: LINES,
      more: false,
      next_cursor: "3",
      previous_cursor: null,
    },
  });
  const chosen: string[] = [];
  render(<Finding onChoose={(line) => chosen.push(line)} />);
  await userEvent.type(screen.getByLabelText("Find in the logs"), "saved{Enter}");
  expect(await screen.findByText("1 of 3")).toBeInTheDocument();
  await userEvent.keyboard("{Enter}");
  expect(screen.getByText("2 of 3")).toBeInTheDocument();
  await userEvent.keyboard("{Shift>}{Enter}{Enter}{/Shift}");
  expect(screen.getByText("3 of 3")).toBeInTheDocument();
  expect(chosen).toEqual([0, 40, 0, 80].map((offset) => `1.0.stdout.${offset}`));
});

it("goes to the last error", async () => {
  const searched: (string | null)[] = [];
  fakeApi({
    "GET /training/jobs/job/logs": ({ url }: Request) => {
      searched.push(new URL(url).searchParams.get("search"));
      return { items: LINES, more: false, next_cursor: "3", previous_cursor: null };
    },
  });
  const chosen: string[] = [];
  render(<Finding onChoose={(line) => chosen.push(line)} />);
  await userEvent.click(screen.getByRole("button", { name: "Last error" }));
  expect(await screen.findByText("3 of 3")).toBeInTheDocument();
  expect([searched, chosen]).toEqual([["Error"], ["1.0.stdout.80"]]);
});
