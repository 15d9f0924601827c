import { ActionIcon, Button, CopyButton as Copier, Tooltip } from "@mantine/core";
import { CheckIcon, CopyIcon } from "./icons";

interface Props {
  value: string;
  label: string;
}

export function CopyButton({ value, label }: Props) {
  return (
    <Copier value={value} timeout={1500}>
      {({ copied, copy }) => (
        <Button
          size="xs"
          variant="default"
          leftSection={copied ? <CheckIcon /> : <CopyIcon />}
          onClick={copy}
        >
          <span aria-live="polite">{copied ? "Copied" : label}</span>
        </Button>
      )}
    </Copier>
  );
}

/** The same as an icon beside what it copies. */
export function CopyIconButton({ value, label }: Props) {
  return (
    <Copier value={value} timeout={1500}>
      {({ copied, copy }) => (
        <Tooltip label={copied ? "Copied" : label}>
          <ActionIcon variant="subtle" color="gray" size="xs" aria-label={label} onClick={copy}>
            {copied ? <CheckIcon /> : <CopyIcon />}
          </ActionIcon>
        </Tooltip>
      )}
    </Copier>
  );
}
