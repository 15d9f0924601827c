import { Text } from "@mantine/core";
import { useState } from "react";
import { Dialog } from "./dialog";

interface Props {
  title: string;
  text: React.ReactNode;
  /** The label of the button that confirms. */
  action: string;
  onConfirm: () => void;
  /** Renders the button that opens the question. */
  children: (ask: () => void) => React.ReactNode;
}

/** A question before something that cannot be undone. */
export function Confirm({ title, text, action, onConfirm, children }: Props) {
  const [open, setOpen] = useState(false);
  const close = () => setOpen(false);
  return (
    <>
      {children(() => setOpen(true))}
      {open ? (
        <Dialog
          title={title}
          action={action}
          danger
          onClose={close}
          onSubmit={() => {
            close();
            onConfirm();
          }}
        >
          <Text size="sm" component="div">
            {text}
          </Text>
        </Dialog>
      ) : null}
    </>
  );
}
