import { readPackagesOptions } from "@/client/@tanstack/react-query.gen";
import type { JobPackages } from "./types";

/** What a job's newest attempt ran with. */
export function packagesOptions(jobId: string) {
  return readPackagesOptions({ path: { job_id: jobId } });
}

/** Name and version of Python, the system and CUDA, where known, and then of the packages. */
export function versionsOf(found: JobPackages): [name: string, version: string][] {
  const base = { Python: found.python, System: found.os, CUDA: found.cuda, Driver: found.driver };
  return [
    ...Object.entries(base).flatMap(([name, version]): [string, string][] =>
      version === null ? [] : [[name, version]],
    ),
    ...Object.entries(found.packages),
  ];
}
