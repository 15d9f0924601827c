import { Text, TextInput } from "@mantine/core";
import { useState } from "react";
import { useRights } from "@/shared/api/rights";
import type { ClusterNode } from "@/shared/api/types";
import { Dialog } from "@/shared/dialogs/dialog";
import { plural } from "@/shared/format";
import { Command } from "@/shared/ui/command";
import { useSetDrained } from "./api/nodes";
import { jobsOn } from "./node-sums";

/** Drains a node, after asking why, or undrains it. */
export function DrainButton({ node }: { node: ClusterNode }) {
  const [open, setOpen] = useState(false);
  const [reason, setReason] = useState("");
  const { admin } = useRights();
  const change = useSetDrained(node.id);
  const jobs = jobsOn(node.devices).length;
  if (node.drain_reason !== null) {
    return (
      <Command
        label="Undrain"
        name={`Undrain ${node.name}`}
        busy={change.isPending}
        refused={admin ?? node.refused_commands.undrain}
        onClick={() => change.mutate({ drained: false })}
      />
    );
  }
  const close = (): void => {
    setOpen(false);
    setReason("");
  };
  return (
    <>
      <Command
        label="Drain"
        name={`Drain ${node.name}`}
        refused={admin ?? node.refused_commands.drain}
        onClick={() => setOpen(true)}
      />
      {open ? (
        <Dialog
          title={`Drain ${node.name}?`}
          action="Drain node"
          onClose={close}
          onSubmit={() => {
            change.mutate({ drained: true, reason });
            close();
          }}
        >
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
        </Dialog>
      ) : null}
    </>
  );
}
