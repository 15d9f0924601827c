import { Select, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import type { CodeDifference } from "@/client";
import { compareJobCodeOptions } from "@/client/@tanstack/react-query.gen";
import type { Job } from "@/shared/api/types";
import { labelOf } from "@/shared/curves/jobs/labels";
import { DiffView } from "@/shared/diff/diff-view";
import { plural } from "@/shared/format";
import classes from "./compare-page.module.css";

/** How the code of the first job and another one differs; nothing where one has no code, or the
 * reader may not see it. */
export function CodeDifferences({ jobs }: { jobs: Job[] }) {
  const coded = jobs.filter((job) => job.spec?.code != null);
  const [chosen, setChosen] = useState<string | null>(null);
  const [first, ...others] = coded;
  const second = others.find(({ id }) => id === chosen) ?? others[0];
  const found = useQuery({
    ...compareJobCodeOptions({
      path: { job_id: first?.id ?? "" },
      query: { other: second?.id ?? "" },
    }),
    enabled: first !== undefined && second !== undefined,
    staleTime: Number.POSITIVE_INFINITY,
    retry: false,
  }).data;
  if (found === undefined || first === undefined || second === undefined) return null;
  const { items, commits } = found;
  return (
    <details>
      <summary className={classes.fold}>
        {summaryOf(found)}
        {others.length > 1 ? ` between ${labelOf(first, jobs)} and ${labelOf(second, jobs)}` : ""}
      </summary>
      {others.length > 1 ? (
        <Select
          size="xs"
          w={240}
          mb="xs"
          label="Compare with"
          allowDeselect={false}
          data={others.map((job) => ({ value: job.id, label: labelOf(job, jobs) }))}
          value={second.id}
          onChange={setChosen}
        />
      ) : null}
      {commits.length > 0 ? (
        <Text size="sm" mt="xs">
          {commits.map((commit) => commit?.slice(0, 12) ?? "no known commit").join(" and ")}
        </Text>
      ) : null}
      {items.map(({ path, change, diff }) => (
        <section key={path} aria-label={path}>
          <Text size="sm" mt="xs" mb={4}>
            <code>{path}</code> {change}
            {diff === null ? ", binary or large" : ""}
          </Text>
          {diff ? <DiffView text={diff} /> : null}
        </section>
      ))}
    </details>
  );
}

/** Of code in git only the commits are known, not the files; an upload has none. */
function summaryOf({ identical, items, commits }: CodeDifference): string {
  if (identical) return "Identical code";
  if (identical === false) return plural(items.length, "code difference");
  return commits.includes(null) ? "Code that cannot be compared" : "Code of different commits";
}
