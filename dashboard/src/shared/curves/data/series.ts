/**
 * The points of one series, bounded in memory: when there are too many, neighbours are merged into
 * buckets that keep their last value, minimum and maximum, so that no spike is lost.
 *
 * History and live tail may overlap, and a restarted job repeats steps: a point counts if it comes after
 * the last step, or is newer than the point of its step. Then it replaces all points from that step on.
 */

export interface Sample {
  step: number;
  /** Seconds since the epoch. */
  time: number;
  value: number | null;
  min?: number | null;
  max?: number | null;
}

/** Twice the points that a chart of half a window's width shows; half as many after merging. */
export const MAX_SAMPLES = 3000;

export class CurveSeries {
  steps: number[] = [];
  times: number[] = [];
  values: (number | null)[] = [];
  mins: (number | null)[] = [];
  maxs: (number | null)[] = [];
  /** Steps per bucket. */
  private width = 1;

  constructor(public limit = MAX_SAMPLES) {}

  get length(): number {
    return this.steps.length;
  }

  get last(): Sample | null {
    const at = this.length - 1;
    if (at < 0) return null;
    return { step: this.steps[at] ?? 0, time: this.times[at] ?? 0, value: this.values[at] ?? null };
  }

  /** Appends points in the order of arrival; returns whether any of them counted. */
  append(samples: Iterable<Sample>): boolean {
    let changed = false;
    for (const sample of samples) changed = this.push(sample) || changed;
    if (this.length > this.limit) this.merge();
    return changed;
  }

  private push(sample: Sample): boolean {
    const last = this.last;
    if (last !== null && sample.step <= last.step) {
      if (sample.time <= last.time) return false;
      this.truncate(sample.step);
    }
    const value = finite(sample.value);
    this.steps.push(sample.step);
    this.times.push(sample.time);
    this.values.push(value);
    this.mins.push(sample.min === undefined ? value : finite(sample.min));
    this.maxs.push(sample.max === undefined ? value : finite(sample.max));
    return true;
  }

  /** Drops all points from a step on. */
  private truncate(step: number): void {
    let keep = this.length;
    while (keep > 0 && (this.steps[keep - 1] ?? 0) >= step) keep -= 1;
    for (const column of [this.steps, this.times, this.values, this.mins, this.maxs]) {
      column.length = keep;
    }
  }

  private merge(): void {
    while (this.length > this.limit / 2) {
      const before = this.length;
      this.width *= 2;
      this.mergeInto(this.width);
      // History may come in buckets that are wider already: try the next width.
      if (this.length === before && this.width > (this.last?.step ?? 0)) return;
    }
  }

  private mergeInto(width: number): void {
    let kept = -1;
    let bucket = -1;
    for (let i = 0; i < this.length; i++) {
      const step = this.steps[i] ?? 0;
      const mine = Math.floor((step - 1) / width);
      if (mine !== bucket) {
        kept += 1;
        bucket = mine;
        this.mins[kept] = this.mins[i] ?? null;
        this.maxs[kept] = this.maxs[i] ?? null;
      } else {
        this.mins[kept] = minOf(this.mins[kept] ?? null, this.mins[i] ?? null);
        this.maxs[kept] = maxOf(this.maxs[kept] ?? null, this.maxs[i] ?? null);
      }
      this.steps[kept] = step;
      this.times[kept] = this.times[i] ?? 0;
      this.values[kept] = this.values[i] ?? null;
    }
    for (const column of [this.steps, this.times, this.values, this.mins, this.maxs]) {
      column.length = kept + 1;
    }
  }
}

function finite(value: number | null | undefined): number | null {
  return value === null || value === undefined || !Number.isFinite(value) ? null : value;
}

function minOf(a: number | null, b: number | null): number | null {
  if (a === null || b === null) return a ?? b;
  return Math.min(a, b);
}

function maxOf(a: number | null, b: number | null): number | null {
  if (a === null || b === null) return a ?? b;
  return Math.max(a, b);
}
