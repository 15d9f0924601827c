import { Alert, Button, Code, Group, Modal, Stack, Text, TextInput } from "@mantine/core";
import { useState } from "react";
import { CopyButton } from "@/shared/ui/copy-button";
import { AlertIcon, PlusIcon } from "@/shared/ui/icons";
import { Problem } from "@/shared/ui/problem";
import { useAnnounceNode } from "./api/nodes";

/** Registers a node and shows the command that joins it. */
export function AddNode() {
  const [open, setOpen] = useState(false);
  const [name, setName] = useState("");
  const announce = useAnnounceNode();
  const close = (): void => {
    setOpen(false);
    setName("");
    announce.reset();
  };
  return (
    <>
      <Button size="xs" leftSection={<PlusIcon />} onClick={() => setOpen(true)}>
        Add a node
      </Button>
      <Modal opened={open} onClose={close} title="Add a node" size="lg" centered>
        {announce.data ? (
          <Stack gap="sm">
            <Text size="sm">
              Run this on <b>{announce.data.name}</b>. Trainhall must be installed there, and the
              host must reach this coordinator. The token works once.
            </Text>
            <Code block style={{ whiteSpace: "pre-wrap", overflowWrap: "anywhere" }}>
              {announce.data.command}
            </Code>
            {announce.data.note ? (
              <Alert
                color="orange"
                icon={<AlertIcon />}
                title="Other hosts cannot reach this coordinator"
              >
                {sentence(announce.data.note)}
              </Alert>
            ) : null}
            <Group justify="space-between">
              <CopyButton value={announce.data.command} label="Copy command" />
              <Button size="xs" onClick={close}>
                Done
              </Button>
            </Group>
          </Stack>
        ) : (
          <form
            onSubmit={(event) => {
              event.preventDefault();
              announce.mutate({ body: { name: name.trim() || undefined } });
            }}
          >
            <Stack gap="sm">
              <TextInput
                label="Name"
                description="The name shown for this node. Leave empty to use the host name."
                value={name}
                onChange={(event) => setName(event.currentTarget.value)}
                data-autofocus
              />
              {announce.error ? (
                <Problem error={announce.error} what="Could not add the node" />
              ) : null}
              <Group justify="flex-end">
                <Button variant="default" size="xs" onClick={close}>
                  Close
                </Button>
                <Button type="submit" size="xs" loading={announce.isPending}>
                  Get command
                </Button>
              </Group>
            </Stack>
          </form>
        )}
      </Modal>
    </>
  );
}

function sentence(text: string): string {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
}
