import type { Job } from "@/shared/api/types";

/** What a copy of a job begins with. Code is not uploaded again: its folder may have changed. */
export function copiedFrom({ name, spec }: Pick<Job, "name" | "spec">): string {
  const text = `Copied from ${name}, with all defaults filled in.`;
  if (typeof spec?.code !== "string") return text;
  return `${text} It uses the code uploaded with ${name}; trainhall submit uploads newer code.`;
}
