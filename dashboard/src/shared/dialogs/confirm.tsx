import { Text } from "@mantine/core";
import { type ComponentProps, type ReactNode, useState } from "react";
import { Command } from "../ui/command";
import { Dialog } from "./dialog";

interface Question {
  title: string;
  text: ReactNode;
  /** The label of the button that confirms. */
  action: string;
  onConfirm: () => void;
}

interface Props extends Question {
  /** Renders the button that opens the question. */
  children: (ask: () => void) => ReactNode;
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

type CommandProps = Omit<ComponentProps<typeof Command>, "title" | "danger" | "onClick">;

/** A command that cannot be undone, which asks first. */
export function ConfirmedCommand({
  title,
  text,
  action,
  onConfirm,
  ...command
}: Question & CommandProps) {
  return (
    <Confirm title={title} text={text} action={action} onConfirm={onConfirm}>
      {(ask) => <Command {...command} danger onClick={ask} />}
    </Confirm>
  );
}
