import { isRecord } from "@/shared/api/problem";
import { documentOf } from "@/shared/spec/spec-text";

const CODE = /^code:[^\n]*(\n[ \t]+[^\n]*)*(\n|$)/m;

/** Returns a spec in YAML whose `code` is an upload; other lines stay as they are. */
export function withUpload(text: string, sha256: string): string {
  const line = `code: ${sha256}\n`;
  if (CODE.test(text)) return text.replace(CODE, line);
  const name = /^name:[^\n]*\n/m;
  return name.test(text) ? text.replace(name, (found) => `${found}${line}`) : `${line}${text}`;
}

/** Returns the project that a spec names; null: none. */
export function projectIn(text: string): string | null {
  const document = documentOf(text);
  const project = isRecord(document) ? document.project : null;
  return typeof project === "string" ? project : null;
}
