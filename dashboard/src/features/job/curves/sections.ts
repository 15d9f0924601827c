import type { Panel } from "./panels";

export interface Section<P> {
  /** What stands before the slash in the names of its curves; empty: of none. */
  prefix: string;
  panels: P[];
}

/**
 * The charts in sections: first those without a prefix and the pinned ones, then those of each prefix,
 * as of `train/loss`, in the order in which the prefixes appear.
 */
export function sectionsOf<P extends Pick<Panel, "title">>(
  panels: readonly P[],
  isPinned: (title: string) => boolean,
): Section<P>[] {
  const sections = new Map<string, P[]>([["", []]]);
  for (const panel of panels) {
    const end = panel.title.indexOf("/");
    const prefix = end > 0 && !isPinned(panel.title) ? panel.title.slice(0, end) : "";
    sections.set(prefix, [...(sections.get(prefix) ?? []), panel]);
  }
  return [...sections]
    .map(([prefix, found]) => ({ prefix, panels: found }))
    .filter((section) => section.panels.length > 0);
}
