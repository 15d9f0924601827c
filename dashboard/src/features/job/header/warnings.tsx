import { Text } from "@mantine/core";
import type { Job } from "@/shared/api/types";
import { LinkedText } from "@/shared/ui/linked-text";

/** Problems of a job that keeps running. */
export function Warnings({ job }: { job: Job }) {
  const slow = stragglerWarning(job);
  const warnings = slow === null ? job.warnings : [slow, ...job.warnings];
  return warnings.map((text) => (
    <Text key={text} size="sm" c="yellow" data-testid="warning">
      <LinkedText text={text} />
    </Text>
  ));
}

/** Names the rank that the others wait for, step after step. */
function stragglerWarning({ straggler: slow }: Job): string | null {
  if (!slow) return null;
  const where = slow.node ? ` on ${slow.node}` : "";
  return `rank ${slow.rank}${where} lags behind: ${slow.ratio.toFixed(2)} × the median step time`;
}
