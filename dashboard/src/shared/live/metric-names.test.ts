import { expect, it } from "vitest";
import { labelOf } from "./metric-names";

it("a name of words is a label; an abbreviation or a path stays as it is", () => {
  expect(["loss", "eval_loss", "eval_f1", "bits_per_byte", "perplexity"].map(labelOf)).toEqual([
    "Loss",
    "Validation loss",
    "Validation f1",
    "Bits per byte",
    "Perplexity",
  ]);
  expect(["lr", "f1", "val/f1", "trainLoss"].map(labelOf)).toEqual([
    "lr",
    "f1",
    "val/f1",
    "trainLoss",
  ]);
});
