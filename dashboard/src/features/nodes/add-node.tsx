import { Alert, Button, Code, Group, Modal, Stack, Text, TextInput } from "@mantine/core";
import { useState } from "react";
import { useRights } from "@/shared/api/rights";
import { CopyButton } from "@/shared/copy/copy-button";
import { AlertIcon, PlusIcon } from "@/shared/ui/icons";
import { Problem } from "@/shared/ui/problem";
import { Refusable } from "@/shared/ui/refusable";
import { useRegisterNode } from "./api/nodes";

/** Registers a node and shows the command that joins it. */
export function AddNode() {
  const [open, setOpen] = useState(false);
  const [name, setName] = useState("");
  const { admin } = useRights();
  const register = useRegisterNode();
  const close = (): void => {
    setOpen(false);
    setName("");
    register.reset();
  };
  return (
    <>
      <Refusable refused={admin} label="Add a node" icon={<PlusIcon />}>
        <Button size="xs" leftSection={<PlusIcon />} onClick={() => setOpen(true)}>
          Add a node
        </Button>
      </Refusable>
      <Modal opened={open} onClose={close} title="Add a node" size="lg" centered>
        {register.data ? (
          <Stack gap="sm">
            <Text size="sm">
              Run this on <b>{register.data.name}</b>. Trainhall must be installed there, and the
              host must reach this coordinator. The token works once
              {register.data.replaced_token ? "; the one given before no longer works." : "."}
            </Text>
            <Code block style={{ whiteSpace: "pre-wrap", overflowWrap: "anywhere" }}>
              {register.data.command}
            </Code>
            {register.data.note ? (
              <Alert
                color="orange"
                icon={<AlertIcon />}
                title="Other hosts cannot reach this coordinator"
              >
                {sentence(register.data.note)}
              </Alert>
            ) : null}
            <Group justify="space-between">
              <CopyButton value={register.data.command} label="Copy command" />
              <Button size="xs" onClick={close}>
                Done
              </Button>
            </Group>
          </Stack>
        ) : (
          <form
            onSubmit={(event) => {
              event.preventDefault();
              register.mutate({ body: { name: name.trim() || undefined } });
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
              {register.error ? (
                <Problem error={register.error} what="Could not add the node" />
              ) : null}
              <Group justify="flex-end">
                <Button variant="default" size="xs" onClick={close}>
                  Close
                </Button>
                <Button type="submit" size="xs" loading={register.isPending}>
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
