import { parseSearchWith, stringifySearchWith } from "@tanstack/react-router";

/**
 * Parses a value of a URL as JSON, if JSON would write it in the same way.
 *
 * @throws SyntaxError otherwise; the router then keeps the text. The id `9170762e3862` is no number.
 */
function parse(text: string): unknown {
  const value: unknown = JSON.parse(text);
  if (typeof value === "number" && String(value) !== text) throw new SyntaxError(text);
  return value;
}

export const parseSearch = parseSearchWith(parse);
export const stringifySearch = stringifySearchWith(JSON.stringify, parse);
