import { describe, expect, it } from "vitest";
import type { Job } from "@/shared/api/types";
import {
  added,
  available,
  columnsOf,
  DEFAULT_COLUMNS,
  moved,
  pinToggled,
  removed,
  shownColumns,
  titleOf,
  toSearch,
  valueIn,
} from "./columns";

const columns = (text: string, pinned = 0) => ({ ids: text.split(" "), pinned });

describe("columns", () => {
  it("are read from a URL, without what is none", () => {
    expect(columnsOf({ columns: ["user", 5, "nope", "metrics.loss.min", "user"] })).toEqual({
      columns: ["user", "metrics.loss.min"],
    });
    for (const raw of [{}, { columns: "user" }, { columns: [] }, { pinned: -1 }, { pinned: "1" }])
      expect(columnsOf(raw)).toEqual({});
    expect(shownColumns(columnsOf({ pinned: 99 }))).toEqual({ ids: DEFAULT_COLUMNS, pinned: 7 });
    expect(toSearch({ ids: DEFAULT_COLUMNS, pinned: 0 })).toEqual({});
    expect(toSearch(columns("name user", 1))).toEqual({ columns: ["name", "user"], pinned: 1 });
  });

  it("have titles", () => {
    expect(["user", "parameters.lr", "metrics.val/f1", "metrics.loss.max"].map(titleOf)).toEqual([
      "Owner",
      "lr",
      "val/f1",
      "loss (max)",
    ]);
    expect(valueIn("metrics.loss.max")).toEqual({
      kind: "metric",
      name: "loss",
      aggregate: "max",
    });
  });

  it("are moved, pinned, added and removed", () => {
    expect(moved(columns("a b c"), "b", -1)).toEqual(columns("b a c"));
    expect(moved(columns("a b c"), "c", 1)).toEqual(columns("a b c"));
    expect(moved(columns("a b c"), "a", -1)).toEqual(columns("a b c"));
    expect(pinToggled(columns("a b c"), "c")).toEqual(columns("c a b", 1));
    expect(pinToggled(columns("c a b", 1), "b")).toEqual(columns("c b a", 2));
    expect(pinToggled(columns("c b a", 2), "c")).toEqual(columns("b c a", 1));
    expect(added(columns("a"), "b")).toEqual(columns("a b"));
    expect(added(columns("a"), "a")).toEqual(columns("a"));
    expect(removed(columns("a b c", 2), "a")).toEqual(columns("b c", 1));
    expect(removed(columns("a b", 1), "b")).toEqual(columns("a", 1));
    expect(removed(columns("a"), "a")).toEqual(columns("a"));
  });

  it("are offered for what jobs have", () => {
    const jobs = [
      { parameters: { lr: 1 }, metrics: { loss: 1 } },
      { parameters: {}, metrics: {} },
    ] as unknown as Job[];
    const groups = available(jobs, columns("name metrics.loss"));
    expect(groups.Parameters).toEqual(["parameters.lr"]);
    expect(groups.Metrics).toEqual(["metrics.loss.max", "metrics.loss.min"]);
    expect(groups.Fields).toContain("user");
    expect(groups.Fields).not.toContain("name");
  });
});
