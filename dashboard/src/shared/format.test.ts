import { afterEach, describe, expect, it, vi } from "vitest";
import durations from "./durations.json";
import {
  age,
  bytes,
  byteTicks,
  clock,
  duration,
  metric,
  moment,
  NOTHING,
  percent,
  rate,
  share,
  si,
  timeZone,
  toNumber,
  watts,
} from "./format";

describe("format", () => {
  it("writes bytes in powers of 1024", () => {
    expect([0, 512, 1536, 1024 ** 3, 150 * 1024 ** 3].map(bytes)).toEqual([
      "0 B",
      "512 B",
      "1.5 KiB",
      "1.0 GiB",
      "150 GiB",
    ]);
  });

  it("writes the bytes of an axis in one unit, neighbours apart", () => {
    const MIB = 1024 ** 2;
    expect(byteTicks([0, 64 * MIB, 128 * MIB])).toEqual(["0 MiB", "64 MiB", "128 MiB"]);
    expect(byteTicks([1024 * MIB, 1088 * MIB])).toEqual(["1 GiB", "1.0625 GiB"]);
  });

  it("writes large numbers with SI prefixes", () => {
    expect([0, 12.34, 999, 12_345_678, 3e9].map(si)).toEqual(["0", "12.3", "999", "12.3 M", "3 G"]);
  });

  it("writes power with three digits", () => {
    expect([377.4, 2300, 2944, 11_900, 1_234_567].map(watts)).toEqual([
      "377 W",
      "2.30 kW",
      "2.94 kW",
      "11.9 kW",
      "1235 kW",
    ]);
  });

  it("writes durations in one or two units", () => {
    expect([0, 0.000_045, 0.0312, 4.26, 42, 200, 7500, 273_600].map(duration)).toEqual([
      "0 s",
      "45 µs",
      "31.2 ms",
      "4.3 s",
      "42 s",
      "3 min 20 s",
      "2 h 5 min",
      "3 d 4 h",
    ]);
  });

  it("writes metrics with four digits, and small ones in powers of ten", () => {
    expect([0.123456, 0, 8e-4, 1e-5, 12345678, "NaN"].map(metric)).toEqual([
      "0.1235",
      "0",
      "0.0008",
      "1.00e-5",
      "1.23e+7",
      "NaN",
    ]);
  });

  it("writes shares and rates as Python does", () => {
    expect([27.52, 99.5, 0.42, 0, 0.0001].map(percent)).toEqual([
      "28 %",
      "100 %",
      "0.42 %",
      "0 %",
      "0 %",
    ]);
    expect([0.2752, null].map(share)).toEqual(["28 %", NOTHING]);
    expect([99.56, 2061.4, 12_345, 12_345_678, null].map(rate)).toEqual([
      "99.56",
      "2061",
      "12,350",
      "12,350,000",
      NOTHING,
    ]);
  });

  it("reads numbers sent as text", () => {
    expect(toNumber("Infinity")).toBe(Infinity);
    expect(toNumber("-Infinity")).toBe(-Infinity);
    expect(toNumber("NaN")).toBeNaN();
    expect(toNumber(null)).toBeNull();
  });

  it("writes missing values as a dash", () => {
    for (const write of [bytes, si, metric, percent, duration]) expect(write(null)).toBe(NOTHING);
  });

  it("rounds durations to the nearest, as the command line does", () => {
    for (const [seconds, text] of Object.entries(durations)) {
      expect(duration(Number(seconds)), seconds).toBe(text);
    }
    expect([0.000_999_6, 0.999_6].map(duration)).toEqual(["1 ms", "1 s"]);
  });

  it("writes ages in one unit", () => {
    expect([-3, 59, 61, 7200, 1e6].map(age)).toEqual(["0 s", "59 s", "1 min", "2 h", "11 d"]);
  });
});

describe("times", () => {
  afterEach(() => {
    vi.useRealTimers();
    vi.unstubAllEnvs();
  });

  it("name their zone unless it is the one that the list names", () => {
    vi.stubEnv("TZ", "Europe/Berlin");
    const winter = "2026-10-25T01:30:00Z";
    const summer = "2026-10-25T00:30:00Z";
    expect(moment(winter, "minutes", "UTC+1")).toBe("2026-10-25 02:30");
    expect(moment(summer, "minutes", "UTC+1")).toBe("2026-10-25 02:30 UTC+2");
  });

  it("have 24 hours and a time zone, and a date on another day", () => {
    vi.useFakeTimers({ now: new Date(2026, 10, 24, 12), toFake: ["Date"] });
    const [today, before] = [new Date(2026, 10, 24, 16, 5, 4), new Date(2026, 10, 23, 16, 5, 4)];
    expect(clock(today.getTime())).toBe("16:05:04");
    expect(clock(before.getTime(), "minutes")).toBe("2026-11-23 16:05");
    expect(moment(today.getTime())).toBe(`16:05:04 ${timeZone(today.getTime())}`);
    expect(timeZone()).toMatch(/^UTC([+-]\d+(:\d\d)?)?$/);
  });
});
