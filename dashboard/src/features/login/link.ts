const KEY = "trainhall-page";
const HOME = "/jobs";

/** The code in a login link; empty if there is none. */
export function codeOf(text: string): string {
  return /#code=([\w-]+)/.exec(text)?.[1] ?? "";
}

/** Keeps the page that needed a login; the link is often opened in another tab. */
export function rememberPath(path: string): void {
  localStorage.setItem(KEY, path);
}

/** The page to go to after the login, which is then forgotten. */
export function takePath(): string {
  const path = pathToOpen();
  localStorage.removeItem(KEY);
  return path;
}

/** The page to go to after the login. */
export function pathToOpen(): string {
  const path = localStorage.getItem(KEY) ?? HOME;
  // A path of this coordinator, not an address of another.
  return /^\/(?![/\\])/.test(path) ? path : HOME;
}
