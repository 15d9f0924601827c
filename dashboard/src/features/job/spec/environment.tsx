import { Anchor, Group, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { readEnvironmentOptions } from "@/client/@tanstack/react-query.gen";
import type { Job } from "@/shared/api/types";
import { plural } from "@/shared/format";

/** The environment that hosts prepare for a job, with its lock; nothing for one of the agents'. */
export function Environment({ job }: { job: Job }) {
  const found = useQuery({
    ...readEnvironmentOptions({ path: { job_id: job.id } }),
    // The first host makes the lock while the job starts.
    refetchInterval: (query) => (query.state.data?.locked_at === null ? 5000 : false),
  }).data;
  if (found === undefined || found.kind === "agent") return null;
  if (found.locked_at === null) {
    return (
      <Text size="sm">
        Environment: not locked yet; the first host that prepares it locks its versions
      </Text>
    );
  }
  if (found.image !== null) {
    return (
      <Text size="sm" style={{ overflowWrap: "anywhere" }}>
        Image: {found.image}, Python {found.python}; pinned on {found.node} in attempt{" "}
        {found.attempt}
      </Text>
    );
  }
  const parts = [
    `Python ${found.python}`,
    plural(found.packages ?? 0, "locked package"),
    found.torch === "host" ? "the host's torch" : "no torch of the host",
  ];
  return (
    <Group gap="md">
      <Text size="sm">
        Environment: {parts.join(", ")}; locked on {found.node} in attempt {found.attempt}
      </Text>
      <Anchor
        size="sm"
        href={`/api/v1/training/jobs/${encodeURIComponent(job.id)}/environment/lock`}
        download
      >
        Download lock
      </Anchor>
    </Group>
  );
}
