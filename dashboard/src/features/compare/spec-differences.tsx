import { Text } from "@mantine/core";
import type { Job } from "@/shared/api/types";
import { NOTHING } from "@/shared/format";
import classes from "./compare-page.module.css";
import { specDifferences } from "./spec-diff";

/** In what the specs of jobs differ; nothing when there is nothing to compare. */
export function SpecDifferences({ jobs }: { jobs: Job[] }) {
  if (jobs.length < 2) return null;
  const differences = specDifferences(jobs.map((job) => job.spec));
  if (differences.length === 0) {
    return (
      <Text size="sm" c="dimmed">
        Their specs are the same but for the name.
      </Text>
    );
  }
  return (
    <div className="app-card">
      <table className={`app-table ${classes.diff}`} aria-label="Differences of the specs">
        <thead>
          <tr>
            <th scope="col">In the spec</th>
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
