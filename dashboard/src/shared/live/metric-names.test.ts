import { expect, it } from "vitest";
import { impliedGoal, isValidation, labelOf } from "./metric-names";

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

it("a validation metric is one in each spelling that the coordinator counts", () => {
  const names = ["eval_loss", "Val/Loss", "valid.f1", "validation-accuracy"];
  expect(names.map(isValidation)).toEqual([true, true, true, true]);
  expect(["loss", "value", "train/val_loss", "evaluations"].some(isValidation)).toBe(false);
  expect(names.map(impliedGoal)).toEqual(["min", "min", null, "max"]);
  expect(["val/loss", "valid_accuracy"].map(labelOf)).toEqual([
    "Validation loss",
    "Validation accuracy",
  ]);
});
