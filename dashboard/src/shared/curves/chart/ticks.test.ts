import { describe, expect, it } from "vitest";
import { powersOfTen, spaced } from "./ticks";

describe("ticks at the values tried", () => {
  it("are all of them where they have room", () => {
    expect(spaced([64, 16], { low: 10, high: 70, log: false, length: 600 })).toEqual([16, 64]);
  });

  it("leave out what would overlap, but not the last", () => {
    const scale = { low: 0, high: 100, log: false, length: 500 };
    expect(spaced([1, 50, 95, 99], scale)).toEqual([1, 50, 99]);
  });
});

describe("ticks of a logarithmic axis", () => {
  const scale = { low: 1e-4, high: 1, log: true, length: 800 };

  it("are powers of ten and the ends", () => {
    expect(powersOfTen(0.00021, 0.43, scale)).toEqual([0.00021, 0.001, 0.01, 0.1, 0.43]);
  });

  it("leave out a power beside an end", () => {
    expect(powersOfTen(0.0009, 0.011, scale)).toEqual([0.0009, 0.011]);
    expect(powersOfTen(0.001, 0.1, scale)).toEqual([0.001, 0.01, 0.1]);
  });

  it("are one for a single value", () => {
    expect(powersOfTen(0.01, 0.01, scale)).toEqual([0.01]);
  });
});
