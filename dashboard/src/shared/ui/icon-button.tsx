import { ActionIcon, type ActionIconProps, Tooltip } from "@mantine/core";

interface Props extends ActionIconProps {
  /** Its tooltip. */
  label: string;
  /** Its name for screen readers, where the tooltip is not enough. */
  name?: string;
  onClick: (event: React.MouseEvent<HTMLButtonElement>) => void;
  "aria-pressed"?: boolean;
  children: React.ReactNode;
}

/** A button with an icon alone. */
export function IconButton({ label, name = label, onClick, ...rest }: Props) {
  return (
    <Tooltip label={label} openDelay={300}>
      <ActionIcon variant="subtle" color="gray" aria-label={name} onClick={onClick} {...rest} />
    </Tooltip>
  );
}
