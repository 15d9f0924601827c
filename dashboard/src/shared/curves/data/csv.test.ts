import { expect, it } from "vitest";
import { curvesCsv } from "./csv";
import { CurveSeries } from "./series";

it("writes one row per step, with gaps where a curve has no point", () => {
  const loss = new CurveSeries();
  loss.append([1, 2, 3].map((step) => ({ step, time: step, value: step / 4 })));
  const validation = new CurveSeries();
  validation.append([{ step: 2, time: 2, value: 9 }]);
  const columns = [
    { name: "loss", series: loss },
    { name: 'a "b", c', series: validation },
    { name: "none", series: undefined },
  ];
  expect(curvesCsv(columns)).toBe('step,loss,"a ""b"", c",none\n1,0.25,,\n2,0.5,9,\n3,0.75,,\n');
});
