import { expect, it } from "vitest";
import { CurveStore } from "@/shared/curves/data/store";
import { panelsOf } from "./panels";

function titles(...names: string[]): Record<string, string[]> {
  const store = new CurveStore();
  for (const name of names) store.append(name, null, [{ step: 1, time: 1, value: 1 }]);
  const options = { origin: 0, ranks: false, seriesKey: "", mainMetric: undefined };
  return Object.fromEntries(
    panelsOf(store, store, options).map(({ title, curves }) => [
      title,
      curves.map(({ label }) => label),
    ]),
  );
}

it("a validation loss is in the chart of the loss, in any spelling", () => {
  expect(titles("loss", "eval_loss")).toEqual({ Loss: ["training", "validation"] });
  expect(titles("loss", "val/loss")).toEqual({ Loss: ["training", "validation"] });
  expect(titles("eval_loss", "val/loss")).toEqual({ Loss: ["eval_loss", "val/loss"] });
  expect(titles("val/accuracy", "val/f1")).toEqual({ Accuracy: ["validation"], "val/f1": [""] });
});
