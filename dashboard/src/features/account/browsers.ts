const BROWSERS: readonly [RegExp, string][] = [
  [/\bEdg\w*\//, "Edge"],
  [/\bOPR\//, "Opera"],
  [/\bFirefox\//, "Firefox"],
  [/\b(Chrome|Chromium|HeadlessChrome)\//, "Chrome"],
  [/\bSafari\//, "Safari"],
];
const SYSTEMS: readonly [RegExp, string][] = [
  [/\bAndroid\b/, "Android"],
  [/\b(iPhone|iPad)\b/, "iOS"],
  [/\bWindows\b/, "Windows"],
  [/\bMac OS X\b/, "macOS"],
  [/\bLinux\b/, "Linux"],
];
const MAX_LENGTH = 60;

/** A browser and its system in short, from the text by which it describes itself. */
export function browserOf(client: string): string {
  const find = (known: readonly [RegExp, string][]) =>
    known.find(([pattern]) => pattern.test(client))?.[1];
  const browser = find(BROWSERS);
  if (browser === undefined) return client.slice(0, MAX_LENGTH) || "unknown";
  const system = find(SYSTEMS);
  return system === undefined ? browser : `${browser} on ${system}`;
}
