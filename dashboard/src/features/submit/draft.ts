const KEY = "trainhall.draft";

/** The spec that is being written; it survives a reload, unless the browser forbids storage. */
export function readDraft(): string | null {
  try {
    return sessionStorage.getItem(KEY);
  } catch {
    return null;
  }
}

export function writeDraft(text: string): void {
  try {
    sessionStorage.setItem(KEY, text);
  } catch {
    // Storage is full or forbidden: the text is still in the editor.
  }
}

export function clearDraft(): void {
  try {
    sessionStorage.removeItem(KEY);
  } catch {
    // Nothing was stored.
  }
}
