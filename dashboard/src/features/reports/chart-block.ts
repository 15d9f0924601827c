import { parse, stringify } from "yaml";
import { MAX_SMOOTHING } from "@/shared/curves/controls/view";
import { type Axis, isAxis } from "@/shared/curves/data/axis";
import type { Spread } from "@/shared/curves/data/curve";
import { isSpread } from "@/shared/curves/data/spread";

/** A chart of a report: a fenced block named `chart`. */
export interface ChartBlock {
  /** Query of the list of jobs. */
  query: string;
  /** Ids, in the order of their colours; empty: the jobs that the query finds. */
  jobs: readonly string[];
  metrics: readonly string[];
  x: Axis;
  smooth: number;
  log: boolean;
  seeds: Spread | undefined;
}

export type Parsed = { block: ChartBlock } | { errors: string[] };

/** As it is written, before it is checked. */
export type RawBlock = Record<string, unknown>;

const SOURCES = ["jobs", "query", "experiment"] as const;
const KEYS = [...SOURCES, "metric", "x", "smooth", "log", "seeds"];
const ARCHIVED_TOO = "archived:yes,no";
/** Every value is text: an id such as 9170762e3862 is no number. */
const TEXTS = { schema: "failsafe" } as const;

/** The text of a block in Markdown. */
export function fenced(raw: RawBlock): string {
  const texts = Object.entries(raw).map(([key, value]) => [
    key,
    Array.isArray(value) ? value.map(String) : String(value),
  ]);
  return `\`\`\`chart\n${stringify(Object.fromEntries(texts), TEXTS)}\`\`\`\n`;
}

/** The chart that the text of a block describes, or all that is wrong with it. */
export function parseBlock(text: string): Parsed {
  let raw: unknown;
  try {
    raw = parse(text, TEXTS);
  } catch (error) {
    return { errors: [`This is not YAML: ${error instanceof Error ? error.message : error}`] };
  }
  if (typeof raw !== "object" || raw === null || Array.isArray(raw)) {
    return { errors: [`A chart has one key a line: ${KEYS.join(", ")}.`] };
  }
  const found = new Reader(raw as RawBlock);
  const block = found.block();
  return found.errors.length > 0 ? { errors: found.errors } : { block };
}

class Reader {
  readonly errors: string[] = [];

  constructor(private readonly raw: RawBlock) {
    for (const key of Object.keys(raw).filter((each) => !KEYS.includes(each))) {
      this.errors.push(`${key}: unknown key; allowed are ${KEYS.join(", ")}.`);
    }
  }

  block(): ChartBlock {
    const { x = "step", smooth = "0", log = "false", seeds } = this.raw;
    if (!isAxis(x)) this.wrong("x", x, "step, time, elapsed or metrics.NAME");
    if (!(Number(smooth) >= 0 && Number(smooth) <= MAX_SMOOTHING)) {
      this.wrong("smooth", smooth, `a number from 0 to ${MAX_SMOOTHING}`);
    }
    if (log !== "true" && log !== "false") this.wrong("log", log, "true or false");
    if (seeds !== undefined && !isSpread(seeds)) this.wrong("seeds", seeds, "range or deviation");
    return {
      ...this.source(),
      metrics: this.names("metric", "the name of a metric, or a list of names"),
      x: x as Axis,
      smooth: Number(smooth),
      log: log === "true",
      seeds: seeds as Spread | undefined,
    };
  }

  private source(): Pick<ChartBlock, "query" | "jobs"> {
    const given = SOURCES.filter((key) => this.raw[key] !== undefined);
    const [key] = given;
    if (key === undefined || given.length > 1) {
      const besides = given.length === 0 ? "" : `, not ${given.join(" and ")}`;
      this.errors.push(`Give one of ${SOURCES.join(", ")}${besides}.`);
      return { query: "", jobs: [] };
    }
    if (key === "query") return { query: this.text(key, "terms as in the list of jobs"), jobs: [] };
    if (key === "experiment") {
      const experiment = this.text(key, "the name or id of an experiment");
      return { query: `experiment=${quoted(experiment)} ${ARCHIVED_TOO}`, jobs: [] };
    }
    const jobs = this.names(key, "the id of a job, or a list of ids");
    return { query: `id:${jobs.map(quoted).join()} ${ARCHIVED_TOO}`, jobs };
  }

  private text(key: string, allowed: string): string {
    const value = this.raw[key];
    if (typeof value === "string" && value.trim() !== "") return value;
    this.wrong(key, value, allowed);
    return "";
  }

  private names(key: string, allowed: string): string[] {
    const value = this.raw[key];
    const names = Array.isArray(value) ? value : [value];
    const isGood = names.every((name) => typeof name === "string" && name.trim() !== "");
    if (isGood && names.length > 0) return [...new Set(names as string[])];
    this.wrong(key, value, allowed);
    return [];
  }

  private wrong(key: string, value: unknown, allowed: string): void {
    const given = value === undefined || value === "" ? "" : `, not ${JSON.stringify(value)}`;
    this.errors.push(`${key}: must be ${allowed}${given}.`);
  }
}

/** A text as one value of a query. */
function quoted(text: string): string {
  return `"${text.replace(/["\\]/g, "\\$&")}"`;
}
