import { Button, Group, Modal, Stack, Text, TextInput } from "@mantine/core";
import { useState } from "react";
import type { ClusterNode } from "@/shared/api/types";
import { plural } from "@/shared/format";
import { useSetDrained } from "./api/drain-node";
import { jobsOn } from "./node-sums";

/** Takes a node out of use for a while, after asking why; or brings it back. */
export function DrainButton({ node }: { node: ClusterNode }) {
  const [open, setOpen] = useState(false);
  const [reason, setReason] = useState("");
  const change = useSetDrained();
  const jobs = jobsOn(node.devices).length;
  if (node.drain_reason !== null) {
    return (
      <Button
        size="compact-xs"
        variant="light"
        loading={change.isPending}
        aria-label={`Undrain ${node.name}`}
        onClick={() => change.mutate({ id: node.id, drained: false })}
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
        // What is being removed drains for that.
        disabled={node.state === "draining"}
        onClick={() => setOpen(true)}
      >
        Drain
      </Button>
      <Modal opened={open} onClose={close} title={`Drain ${node.name}?`} centered>
        <form
          onSubmit={(event) => {
            event.preventDefault();
            change.mutate({ id: node.id, drained: true, reason });
            close();
          }}
        >
          <Stack gap="sm">
            <Text size="sm">
              It gets no new work until you undrain it
              {jobs > 0 ? `, and ${plural(jobs, "job")} here will save and move` : ""}.
            </Text>
            <TextInput
              label="Reason"
              placeholder="a new disk"
              maxLength={500}
              value={reason}
              onChange={(event) => setReason(event.currentTarget.value)}
              data-autofocus
            />
            <Group justify="flex-end">
              <Button variant="default" size="xs" onClick={close}>
                Keep
              </Button>
              <Button type="submit" size="xs">
                Drain the node
              </Button>
            </Group>
          </Stack>
        </form>
      </Modal>
    </>
  );
}
