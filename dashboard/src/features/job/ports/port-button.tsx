import { Code, NumberInput, Text } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { createPortLinkMutation } from "@/client/@tanstack/react-query.gen";
import type { Job } from "@/shared/api/types";
import { Dialog } from "@/shared/dialogs/dialog";
import { Command } from "@/shared/ui/command";
import { OutIcon } from "@/shared/ui/icons";
import { Problem } from "@/shared/ui/problem";

const MAX_PORT = 65535;
/** Jupyter's. */
const USUAL_PORT = 8888;

/** Opens what a program beside a running job serves by HTTP, in a tab of its own. */
export function PortButton({ job }: { job: Job }) {
  const [open, setOpen] = useState(false);
  if (!job.allowed_commands.includes("exec")) return null;
  return (
    <>
      <Command label="Open port" icon={<OutIcon />} onClick={() => setOpen(true)} />
      {open ? <PortDialog job={job} onClose={() => setOpen(false)} /> : null}
    </>
  );
}

function PortDialog({ job, onClose }: { job: Job; onClose: () => void }) {
  const [port, setPort] = useState<number | string>(USUAL_PORT);
  const link = useMutation(createPortLinkMutation());
  const isPort = typeof port === "number" && port >= 1 && port <= MAX_PORT;
  const openPort = () => {
    if (!isPort) return;
    // Before the request: browsers block tabs that no click has opened.
    const tab = window.open("", "_blank");
    // What runs in the job must not reach this page.
    if (tab) tab.opener = null;
    link.mutate(
      { path: { job_id: job.id, port } },
      {
        onSuccess: ({ url }) => {
          if (tab) tab.location.replace(url);
          else window.location.assign(url);
          onClose();
        },
        onError: () => tab?.close(),
      },
    );
  };
  return (
    <Dialog
      title={`Open a port of ${job.name}`}
      action="Open port"
      busy={link.isPending}
      disabled={!isPort}
      onClose={onClose}
      onSubmit={openPort}
    >
      <NumberInput
        label="Port"
        description="TCP port of 127.0.0.1 beside rank 0, where Jupyter, TensorBoard or another program serves HTTP."
        value={port}
        onChange={setPort}
        min={1}
        max={MAX_PORT}
        allowDecimal={false}
        thousandSeparator=""
        data-autofocus
      />
      {link.error ? (
        <>
          <Problem error={link.error} what="Could not open the port" />
          <Text size="xs" c="dimmed">
            From a terminal: <Code>{`trainhall forward ${job.id} ${port}`}</Code>
          </Text>
        </>
      ) : null}
    </Dialog>
  );
}
