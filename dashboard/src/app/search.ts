import { parseSearchWith, stringifySearchWith } from "@tanstack/react-router";

/**
 * A value of an address: JSON where it is written as JSON would write it.
 *
 * @throws SyntaxError for any other text, which the router then takes as it is: the id `9170762e3862`
 *   is no number, though it reads like one.
 */
function parse(text: string): unknown {
  const value: unknown = JSON.parse(text);
  if (typeof value === "number" && String(value) !== text) throw new SyntaxError(text);
  return value;
}

export const parseSearch = parseSearchWith(parse);
export const stringifySearch = stringifySearchWith(JSON.stringify, parse);
