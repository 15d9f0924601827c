import { Text } from "@mantine/core";
import type { Job } from "@/shared/api/types";
import { NOTHING } from "@/shared/format";
import classes from "./compare-page.module.css";
import { specDifferences } from "./spec-diff";

/** A table of the spec keys in which jobs differ; nothing for a single job. */
export function SpecDifferences({ jobs }: { jobs: Job[] }) {
  if (jobs.length < 2) return null;
  const differences = specDifferences(jobs.map((job) => job.spec));
  if (differences.length === 0) {
    return (
      <Text size="sm" c="dimmed">
        Identical configs.
      </Text>
    );
  }
  return (
    <div className="app-card">
      <table className={`app-table ${classes.diff}`} aria-label="Spec differences">
        <thead>
          <tr>
            <th scope="col">Spec key</th>
            {jobs.map((job) => (
              <th key={job.id} scope="col">
                {job.name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {differences.map(({ key, values }) => (
            <tr key={key}>
              <td>
                <code>{key}</code>
              </td>
              {values.map((value, i) => (
                <td key={jobs[i]?.id}>
                  {value ?? (
                    <Text span c="dimmed">
                      {NOTHING}
                    </Text>
                  )}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
