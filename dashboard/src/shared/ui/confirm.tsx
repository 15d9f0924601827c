import { Button, Group, Modal, Text } from "@mantine/core";
import { useState } from "react";

interface Props {
  title: string;
  text: React.ReactNode;
  /** The word on the button that does it. */
  action: string;
  onConfirm: () => void;
  /** Draws what opens the question. */
  children: (ask: () => void) => React.ReactNode;
}

/** A question before something that can't be undone. Escape and "Go back" change nothing. */
export function Confirm({ title, text, action, onConfirm, children }: Props) {
  const [open, setOpen] = useState(false);
  return (
    <>
      {children(() => setOpen(true))}
      <Modal opened={open} onClose={() => setOpen(false)} title={title} centered>
        <Text size="sm" component="div">
          {text}
        </Text>
        <Group justify="flex-end" mt="lg">
          <Button variant="default" data-autofocus onClick={() => setOpen(false)}>
            Go back
          </Button>
          <Button
            color="red"
            onClick={() => {
              setOpen(false);
              onConfirm();
            }}
          >
            {action}
          </Button>
        </Group>
      </Modal>
    </>
  );
}
