/** The ranks of a text such as "0, 3"; null for all, undefined if it is none. */
export function ranksOf(text: string): number[] | null | undefined {
  if (text.trim() === "") return null;
  const parts = text.split(",").map((part) => part.trim());
  return parts.every((part) => /^\d+$/.test(part)) ? parts.map(Number) : undefined;
}
