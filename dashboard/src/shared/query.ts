/** A value as a term of a query holds it: in quotes where it needs them. */
export function quoted(text: string): string {
  return /^[^\s",:=<>\\]+$/.test(text) ? text : `"${text.replace(/(["\\])/g, "\\$1")}"`;
}
