import { Button, CopyButton as Copier } from "@mantine/core";
import { IconButton } from "../ui/icon-button";
import { CheckIcon, CopyIcon } from "../ui/icons";

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
        <IconButton label={copied ? "Copied" : label} name={label} size="xs" onClick={copy}>
          {copied ? <CheckIcon /> : <CopyIcon />}
        </IconButton>
      )}
    </Copier>
  );
}
