import { useLocalStorage } from "@mantine/hooks";
import { useState } from "react";
import type { Pin } from "@/shared/curves/chart/pin-buttons";

interface Panel {
  title: string;
  curves: readonly { name: string }[];
}

interface Arrangement {
  /** Titles in the order in which they first appeared. */
  order: readonly string[];
  /** Titles that come first, in this order. */
  pinned: readonly string[];
  /** A regular expression that a title or the name of a curve matches. */
  filter: string;
}

/** The charts that match a filter: the pinned ones, then the others in their order. */
export function arranged<P extends Panel>(
  panels: readonly P[],
  { order, pinned, filter }: Arrangement,
): P[] {
  const pattern = patternOf(filter);
  const rank = ({ title }: P) => {
    const at = pinned.indexOf(title);
    return at >= 0 ? at - pinned.length : order.indexOf(title);
  };
  return panels
    .filter(({ title, curves }) => [title, ...curves.map(({ name }) => name)].some(pattern))
    .sort((a, b) => rank(a) - rank(b));
}

/** Titles that are new come after those that were there, so that no chart moves. */
export function withNew(order: readonly string[], titles: readonly string[]): readonly string[] {
  const added = titles.filter((title) => !order.includes(title));
  return added.length === 0 ? order : [...order, ...added];
}

/** Moves a title one place forward. */
export function movedForward(pinned: readonly string[], title: string): string[] {
  const at = pinned.indexOf(title);
  return at < 1 ? [...pinned] : pinned.toSpliced(at, 1).toSpliced(at - 1, 0, title);
}

export function isPattern(text: string): boolean {
  try {
    new RegExp(text, "i");
    return true;
  } catch {
    return false;
  }
}

function patternOf(text: string): (name: string) => boolean {
  if (!isPattern(text)) return () => true;
  const pattern = new RegExp(text, "i");
  return (name) => pattern.test(name);
}

/**
 * The charts of a page in their order, and the pins, which the browser keeps for all jobs.
 * Until `isSettled` the order is that of the panels; then charts keep their places.
 */
export function useArrangement<P extends Panel>(
  panels: readonly P[],
  filter: string,
  isSettled: boolean,
) {
  const [pinned, setPinned] = useLocalStorage<string[]>({
    key: "trainhall-pinned-charts",
    defaultValue: [],
  });
  const titles = panels.map(({ title }) => title);
  const [order, setOrder] = useState<readonly string[]>(titles);
  const next = isSettled ? withNew(order, titles) : titles;
  if (next.join("\n") !== order.join("\n")) setOrder(next);
  const pinOf = (title: string): Pin => {
    const at = pinned.indexOf(title);
    return {
      pinned: at >= 0,
      onPin: () =>
        setPinned(at >= 0 ? pinned.filter((each) => each !== title) : [...pinned, title]),
      onForward: at > 0 ? () => setPinned(movedForward(pinned, title)) : undefined,
    };
  };
  return { shown: arranged(panels, { order: next, pinned, filter }), pinOf };
}
