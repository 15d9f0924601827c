import { Button, Tooltip } from "@mantine/core";
import { useUnreachable } from "../api/cluster";
import { usePageCommands } from "../page/commands";
import classes from "./icon.module.css";

interface Props {
  label: string;
  /** Its name for screen readers: "Pause digits". */
  name?: string | undefined;
  icon?: React.ReactNode;
  /** Show the icon alone, as in a row of a table. */
  compact?: boolean;
  danger?: boolean;
  /** For a command that switches something on and off. */
  pressed?: boolean;
  /** An earlier command is still on its way. */
  busy?: boolean;
  /** Why the command is not possible now. */
  refused?: string | null | undefined;
  onClick: () => void;
}

/**
 * A button that changes something on the coordinator, or shows why it cannot. The palette offers it, too,
 * unless it is one of a row.
 */
export function Command(props: Props) {
  const { label, name, icon, compact = false, danger, pressed, busy = false, onClick } = props;
  const unreachable = useUnreachable();
  const refused = unreachable ?? props.refused ?? null;
  const isOffered = !compact && !busy && refused === null;
  usePageCommands(isOffered ? [{ label: name ?? label, run: onClick }] : []);
  const shared = {
    "aria-label": name,
    "aria-pressed": pressed,
    disabled: busy && refused === null,
    // Not `disabled`: neither pointer nor keyboard could reach the reason.
    "aria-disabled": refused !== null,
    "data-disabled": refused !== null || undefined,
    "aria-description": refused ?? undefined,
    onClick: () => {
      if (refused === null) onClick();
    },
  };
  const button = compact ? (
    <button
      type="button"
      className={`${classes.icon} app-action mantine-focus-auto`}
      data-danger={danger || undefined}
      // The browser's own tooltip: long tables have hundreds of commands.
      title={refused === null ? label : undefined}
      {...shared}
    >
      {icon}
    </button>
  ) : (
    <Button
      size="xs"
      variant="default"
      leftSection={icon}
      {...(danger && refused === null ? { c: "red" } : {})}
      {...shared}
    >
      {label}
    </Button>
  );
  if (compact && refused === null) return button;
  return (
    <Tooltip
      label={refused}
      disabled={refused === null}
      events={{ hover: true, focus: true, touch: true }}
      openDelay={300}
      multiline
      maw={280}
    >
      {button}
    </Tooltip>
  );
}
