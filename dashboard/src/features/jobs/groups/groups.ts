/** Fields by which the list is grouped, by the name in the URL (`?group=user`). */
export const GROUPS = {
  user: "Owner",
  project: "Project",
  state: "State",
  experiment: "Experiment",
  tag: "Tag",
} as const;

export type GroupBy = keyof typeof GROUPS;

export function isGroupBy(value: unknown): value is GroupBy {
  return typeof value === "string" && Object.hasOwn(GROUPS, value);
}
