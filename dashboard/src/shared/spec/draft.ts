/** What is being written; each has a draft of its own. */
export type Draft = "job" | "experiment";

const KEYS: Record<Draft, string> = {
  job: "trainhall.draft",
  experiment: "trainhall.draft.experiment",
};

/** The spec that is being written; it survives a reload, unless the browser forbids storage. */
export function readDraft(of: Draft): string | null {
  try {
    return sessionStorage.getItem(KEYS[of]);
  } catch {
    return null;
  }
}

export function writeDraft(of: Draft, text: string): void {
  try {
    sessionStorage.setItem(KEYS[of], text);
  } catch {
    // Storage is full or forbidden: the text is still in the editor.
  }
}

export function clearDraft(of: Draft): void {
  try {
    sessionStorage.removeItem(KEYS[of]);
  } catch {
    // Nothing was stored.
  }
}
