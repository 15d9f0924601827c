import { Text } from "@mantine/core";
import type { Job } from "@/shared/api/types";
import { Told } from "@/shared/ui/told";

/** What a person should look at in a job that goes on. */
export function Warnings({ job }: { job: Job }) {
  const slow = stragglerTold(job);
  const told = slow === null ? job.warnings : [slow, ...job.warnings];
  return told.map((text) => (
    <Text key={text} size="sm" c="yellow.8" data-testid="warning">
      <Told text={text} />
    </Text>
  ));
}

/** The rank that the others wait for, step after step. */
function stragglerTold({ straggler: slow }: Job): string | null {
  if (!slow) return null;
  const where = slow.node ? ` on ${slow.node}` : "";
  return `rank ${slow.rank}${where} is slow: ${slow.ratio.toFixed(2)} × the median time for a step`;
}
