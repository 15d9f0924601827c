/** What has a spec. */
export type SpecKind = "job" | "experiment";

/** What is being written; each has a draft of its own, a report under its id. */
export type Draft = SpecKind | `report.${string}`;

/** The text that is being written; it survives a reload, unless the browser forbids storage. */
export function readDraft(of: Draft): string | null {
  try {
    return sessionStorage.getItem(keyOf(of));
  } catch {
    return null;
  }
}

export function writeDraft(of: Draft, text: string): void {
  try {
    sessionStorage.setItem(keyOf(of), text);
  } catch {
    // Storage is full or forbidden: the text is still in the editor.
  }
}

export function clearDraft(of: Draft): void {
  try {
    sessionStorage.removeItem(keyOf(of));
  } catch {
    // Nothing was stored.
  }
}

function keyOf(of: Draft): string {
  return `trainhall.draft.${of}`;
}
