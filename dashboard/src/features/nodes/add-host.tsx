import { Alert, Button, Code, Group, Modal, Stack, Text, TextInput } from "@mantine/core";
import { useState } from "react";
import { CopyButton } from "@/shared/ui/copy-button";
import { AlertIcon, PlusIcon } from "@/shared/ui/icons";
import { Problem } from "@/shared/ui/problem";
import { useAnnounceNode } from "./api/announce-node";

/** Announces a host and shows the one command to run on it. */
export function AddHost() {
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
        Add a host
      </Button>
      <Modal opened={open} onClose={close} title="Add a host" size="lg" centered>
        {announce.data ? (
          <Stack gap="sm">
            <Text size="sm">
              Run this on <b>{announce.data.name}</b>. It needs Trainhall and a way to reach this
              coordinator. The token works once.
            </Text>
            <Code block style={{ whiteSpace: "pre-wrap", overflowWrap: "anywhere" }}>
              {announce.data.command}
            </Code>
            {announce.data.note ? (
              <Alert color="orange" icon={<AlertIcon />} title="Not from another host">
                {sentence(announce.data.note)}
              </Alert>
            ) : null}
            <Group justify="space-between">
              <CopyButton value={announce.data.command} label="Copy the command" />
              <Button size="xs" onClick={close}>
                Done
              </Button>
            </Group>
          </Stack>
        ) : (
          <form
            onSubmit={(event) => {
              event.preventDefault();
              announce.mutate(name);
            }}
          >
            <Stack gap="sm">
              <TextInput
                label="Name"
                description="How people call this host; left empty, one is chosen."
                value={name}
                onChange={(event) => setName(event.currentTarget.value)}
                data-autofocus
              />
              {announce.error ? (
                <Problem error={announce.error} what="The host could not be announced" />
              ) : null}
              <Group justify="flex-end">
                <Button variant="default" size="xs" onClick={close}>
                  Close
                </Button>
                <Button type="submit" size="xs" loading={announce.isPending}>
                  Get the command
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
