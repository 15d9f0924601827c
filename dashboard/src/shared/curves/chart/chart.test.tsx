// @vitest-environment jsdom
import { screen } from "@testing-library/react";
import { expect, it } from "vitest";
import { CurveStore } from "@/shared/curves/data/store";
import { shown } from "@/test/shown";
import { Chart } from "./chart";

function chart(number: number) {
  const store = new CurveStore();
  const curves = Array.from({ length: number }, (_, rank) => ({
    store,
    name: "loss",
    rank,
    label: `rank ${rank}`,
    color: "gray",
  }));
  return <Chart title="Loss" curves={curves} axis="step" smoothing={0} syncKey="test" />;
}

it("keys that may have to scroll can be reached by keyboard", () => {
  shown(chart(2));
  expect(screen.getByText("rank 1").closest("[tabindex]")).toBeNull();
  shown(chart(5));
  expect(screen.getByText("rank 4").closest("[tabindex]")).toHaveAttribute("tabindex", "0");
});
