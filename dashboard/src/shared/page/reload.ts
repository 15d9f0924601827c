const KEY = "trainhall.reloaded";
const ONCE_MS = 30_000;

/** Whether the page may reload itself: at most once in `ONCE_MS`. */
export function mayReload(now = Date.now()): boolean {
  try {
    const last = Number(sessionStorage.getItem(KEY) ?? 0);
    if (now - last < ONCE_MS) return false;
    sessionStorage.setItem(KEY, String(now));
    return true;
  } catch {
    // Without storage it could reload forever.
    return false;
  }
}
