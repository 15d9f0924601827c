import { Group, Modal, Skeleton, Stack, Text } from "@mantine/core";
import { useMediaQuery } from "@mantine/hooks";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { type RankStacks, takeStacks } from "@/client";
import type { Job } from "@/shared/api/types";
import { CopyButton, CopyIconButton } from "@/shared/copy/copy-button";
import { Command } from "@/shared/ui/command";
import { AgainIcon } from "@/shared/ui/icons";
import { Problem } from "@/shared/ui/problem";
import { Moment } from "@/shared/ui/time";
import classes from "./stacks-button.module.css";

/** Shows what every thread of a job's ranks does at this moment, or why that is not possible. */
export function StacksButton({ job }: { job: Job }) {
  const [open, setOpen] = useState(false);
  const narrow = useMediaQuery("(max-width: 640px)");
  const refused = job.refused_commands.stacks;
  return (
    <>
      <Command label="Stacks" refused={refused} onClick={() => setOpen(true)} />
      <Modal
        opened={open}
        onClose={() => setOpen(false)}
        title={`Stacks of ${job.name}`}
        size="xl"
        fullScreen={narrow ?? false}
      >
        <StacksOfRanks job={job} refused={refused} />
      </Modal>
    </>
  );
}

function StacksOfRanks({ job, refused }: { job: Job; refused: string | undefined }) {
  const stacks = useQuery({
    queryKey: [{ _id: "stacks", job: job.id }],
    queryFn: () => takeStacks({ path: { job_id: job.id } }),
    // They are of one moment: each opening collects new ones, and nothing else does.
    gcTime: 0,
    staleTime: Number.POSITIVE_INFINITY,
    retry: false,
  });
  const { data, error, isFetching } = stacks;
  const items = data?.items ?? [];
  return (
    <Stack gap="sm">
      <Group gap="sm">
        <Command
          label="Refresh"
          name="Refresh stacks"
          icon={<AgainIcon />}
          refused={refused}
          busy={isFetching}
          onClick={() => void stacks.refetch()}
        />
        {data ? <CopyButton value={items.map(withTitle).join("\n\n")} label="Copy all" /> : null}
        <Text size="xs" c="dimmed" aria-live="polite">
          {isFetching ? "Collecting…" : null}
          {data && !isFetching ? (
            <Moment value={new Date(stacks.dataUpdatedAt).toISOString()} />
          ) : null}
        </Text>
      </Group>
      {error ? <Problem error={error} what="Could not collect the stacks" /> : null}
      {data === undefined && !error ? <Skeleton height={240} /> : null}
      {items.map((item) => (
        <section key={item.rank} aria-label={`Rank ${item.rank}`}>
          <Group justify="space-between" gap="xs" mb={4}>
            <Text size="sm" fw={600}>
              {titleOf(item)}
            </Text>
            <CopyIconButton value={item.text} label={`Copy the stacks of rank ${item.rank}`} />
          </Group>
          {/* Keyboards scroll it, too. */}
          {/* biome-ignore lint/a11y/noNoninteractiveTabindex: as above */}
          <pre className={classes.text} tabIndex={0}>
            {item.text}
          </pre>
        </section>
      ))}
    </Stack>
  );
}

function titleOf({ rank, node, pid }: RankStacks): string {
  return `Rank ${rank} · ${node}${pid === null ? "" : ` · process ${pid}`}`;
}

function withTitle(item: RankStacks): string {
  return `${titleOf(item)}\n${item.text}`;
}
