import { plainText } from "@/shared/ansi";
import type { LogLine } from "@/shared/api/types";
import { lineId } from "./line-id";

/** A bar of tqdm: its description and percentage, as in `train:  40%|████      | 40/100 [00:04<00:06]`. */
const BAR = /^(.*?)\s*(\d{1,3})%\|/;

interface Bar {
  name: string;
  percent: number;
}

/**
 * The lines without the earlier states of progress bars. A terminal draws each over the one before; stored
 * are those at which output was sent. A bar that starts over, or with other output between, is another one.
 */
export function withoutOldBars(lines: LogLine[], chosen: string | undefined): LogLine[] {
  const later = new Map<number, Bar>();
  const kept = lines.toReversed().filter((line) => {
    const bar = barOf(line.text);
    if (bar === null) {
      if (later.size > 0) later.delete(streamOf(line));
      return true;
    }
    const stream = streamOf(line);
    const next = later.get(stream);
    later.set(stream, bar);
    const isOld = next?.name === bar.name && next.percent >= bar.percent;
    return !isOld || lineId(line) === chosen;
  });
  return kept.length === lines.length ? lines : kept.reverse();
}

/** A number, which 200,000 lines build much faster than a text; a rank is below 2 ** 24. */
function streamOf({ attempt, rank, stream }: LogLine): number {
  return 2 * (attempt * 2 ** 24 + rank) + Number(stream === "stderr");
}

/** How many lines were added above those that were there; negative: were dropped. */
export function shiftOf(before: readonly LogLine[], now: readonly LogLine[]): number {
  const [oldFirst] = before;
  const [first] = now;
  if (oldFirst === first || oldFirst === undefined || first === undefined) return 0;
  const added = now.indexOf(oldFirst);
  return added >= 0 ? added : -Math.max(0, before.indexOf(first));
}

function barOf(text: string): Bar | null {
  // Most lines are none, and there may be 200,000.
  if (!text.includes("%|")) return null;
  const [, name, percent] = BAR.exec(plainText(text)) ?? [];
  return name === undefined ? null : { name, percent: Number(percent) };
}
