import { Button, Group, Modal, Stack } from "@mantine/core";

interface Props {
  title: string;
  /** The label of the button that submits. */
  action: string;
  danger?: boolean;
  busy?: boolean;
  disabled?: boolean;
  onSubmit: () => void;
  onClose: () => void;
  children: React.ReactNode;
}

/** A form in a dialog. Escape and "Go back" change nothing. */
export function Dialog(props: Props) {
  const { title, action, danger, busy = false, disabled = false, onSubmit, onClose } = props;
  return (
    <Modal opened onClose={onClose} title={title} centered>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          onSubmit();
        }}
      >
        <Stack gap="sm">{props.children}</Stack>
        <Group justify="flex-end" mt="lg">
          <Button variant="default" data-autofocus={danger} onClick={onClose}>
            Go back
          </Button>
          <Button
            type="submit"
            loading={busy}
            disabled={disabled}
            {...(danger ? { color: "red" } : {})}
          >
            {action}
          </Button>
        </Group>
      </form>
    </Modal>
  );
}
