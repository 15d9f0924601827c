import { screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, it } from "vitest";
import type { Job } from "@/shared/api/types";
import { job } from "@/test/fake-api";
import { shown } from "@/test/shown";
import { ResultsTable } from "./results-table";

it("jobs are compared by their latest metrics, with the spread over seeds", async () => {
  const run = (id: string, seed: number, rate: number, metrics: object) =>
    job({ id, name: id, metrics, spec: { name: id, training: { seed, rate } } });
  const jobs = [
    run("one", 1, 0.1, { loss: 0.5, beauty: "NaN" }),
    run("two", 2, 0.1, { loss: 0.3, beauty: 2 }),
    run("other", 1, 0.2, { loss: 0.4 }),
  ];
  shown(<ResultsTable jobs={jobs as unknown as Job[]} />);
  await userEvent.click(screen.getByText("Results: 2 metrics"));
  const [head, loss, beauty] = within(screen.getByRole("table", { name: "Results" })).getAllByRole(
    "row",
  );
  expect(head).toHaveTextContent("Latest valueonetwoothermean ± SD of 2 seedsone, two");
  expect(loss).toHaveTextContent("loss0.50.30.40.4 ± 0.1414");
  expect(within(loss as HTMLElement).getByTitle("best")).toHaveTextContent("0.3");
  expect(beauty).toHaveTextContent("beautyNaN2——");
});
