import type { ProjectLimits } from "@/client";
import { count, plural } from "@/shared/format";

/** The limits of a project in words; empty without any. */
export function limitTexts({ devices, priority, paths }: ProjectLimits): string[] {
  return [
    ...(typeof devices === "number" ? [`at most ${plural(devices, "device")}`] : []),
    ...(typeof priority === "number" ? [`priority up to ${count(priority)}`] : []),
    ...(paths ? [paths.length > 0 ? `paths under ${paths.join(", ")}` : "no paths of hosts"] : []),
  ];
}

/** A number that was typed; empty: no limit. Undefined: it is no integer. */
export function parseLimit(text: string): number | null | undefined {
  if (text.trim() === "") return null;
  return /^-?\d{1,7}$/.test(text.trim()) ? Number(text) : undefined;
}

/** Folders that were typed, one a line; none: no limit. */
export function parsePaths(text: string): string[] | null {
  const paths = text
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "");
  return paths.length > 0 ? paths : null;
}
