import type { Job } from "@/shared/api/types";

/** The id of the first job with the same config as each job, but for names and seeds. */
export function configsOf(jobs: readonly Job[]): string[] {
  const groups = seedGroups(jobs);
  return jobs.map(
    ({ id }, i) => jobs[groups.find((group) => group.includes(i))?.[0] ?? i]?.id ?? id,
  );
}

/**
 * Indexes of the jobs whose specs differ in their names and seeds alone; groups of two or more. Of the
 * repeats of a benchmark only the first is predicted.
 */
export function seedGroups(jobs: readonly Pick<Job, "spec">[]): number[][] {
  const groups = new Map<string, number[]>();
  jobs.forEach(({ spec }, i) => {
    if (spec === null) return;
    const compared = { ...spec, parallelism: { ...Object(spec.parallelism), predict: undefined } };
    const key = JSON.stringify(compared, (name, value) =>
      name === "name" || /(^|_)seed$/.test(name) ? undefined : value,
    );
    groups.set(key, [...(groups.get(key) ?? []), i]);
  });
  return [...groups.values()].filter((group) => group.length > 1);
}
