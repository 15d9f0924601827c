import { Button, Group, Modal, Stack, Text, TextInput } from "@mantine/core";
import { useState } from "react";
import type { ClusterNode } from "@/shared/api/types";
import { plural } from "@/shared/format";
import { useSetDrained } from "./api/nodes";
import { jobsOn } from "./node-sums";

/** Drains a node, after asking why, or undrains it. */
export function DrainButton({ node }: { node: ClusterNode }) {
  const [open, setOpen] = useState(false);
  const [reason, setReason] = useState("");
  const change = useSetDrained(node.id);
  const jobs = jobsOn(node.devices).length;
  if (node.drain_reason !== null) {
    return (
      <Button
        size="compact-xs"
        variant="light"
        loading={change.isPending}
        aria-label={`Undrain ${node.name}`}
        onClick={() => change.mutate({ drained: false })}
      >
        Undrain
      </Button>
    );
  }
  const close = (): void => {
    setOpen(false);
    setReason("");
  };
  return (
    <>
      <Button
        size="compact-xs"
        variant="subtle"
        aria-label={`Drain ${node.name}`}
        // A node that is being removed drains for that.
        disabled={node.state === "draining"}
        onClick={() => setOpen(true)}
      >
        Drain
      </Button>
      <Modal opened={open} onClose={close} title={`Drain ${node.name}?`} centered>
        <form
          onSubmit={(event) => {
            event.preventDefault();
            change.mutate({ drained: true, reason });
            close();
          }}
        >
          <Stack gap="sm">
            <Text size="sm">
              It gets no new work until you undrain it.
              {jobs > 0 ? ` ${plural(jobs, "job")} on it will save and move.` : ""}
            </Text>
            <TextInput
              label="Reason"
              placeholder="replace the disk"
              maxLength={500}
              value={reason}
              onChange={(event) => setReason(event.currentTarget.value)}
              data-autofocus
            />
            <Group justify="flex-end">
              <Button variant="default" size="xs" onClick={close}>
                Go back
              </Button>
              <Button type="submit" size="xs">
                Drain node
              </Button>
            </Group>
          </Stack>
        </form>
      </Modal>
    </>
  );
}
