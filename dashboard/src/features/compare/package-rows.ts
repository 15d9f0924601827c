import { versionsOf } from "@/shared/api/packages";
import type { JobPackages } from "@/shared/api/types";

export interface PackageRow {
  name: string;
  /** One per job, in order; null where a job does not have it. */
  versions: (string | null)[];
  /** The jobs do not all have the same. */
  differs: boolean;
}

/** The packages of jobs side by side: Python, system and CUDA first, then by name. */
export function packageRows(jobs: readonly JobPackages[]): PackageRow[] {
  const all = jobs.map((found) => new Map(versionsOf(found)));
  const names = [...new Set(all.flatMap((versions) => [...versions.keys()]))];
  const base = ["Python", "System", "CUDA", "Driver"].filter((name) => names.includes(name));
  const packages = names.filter((name) => !base.includes(name)).sort();
  return [...base, ...packages].map((name) => {
    const versions = all.map((each) => each.get(name) ?? null);
    return { name, versions, differs: new Set(versions).size > 1 };
  });
}
