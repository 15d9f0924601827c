import { Command } from "./command";

interface Props {
  /** Why the user may not do it; null: they may. */
  refused: string | null;
  label: string;
  icon?: React.ReactNode;
  /** The button or link where it is allowed. */
  children: React.ReactNode;
}

const doNothing = () => undefined;

/** A button or link; for users who may not use it, a disabled one with the reason. */
export function Refusable({ refused, label, icon, children }: Props) {
  if (refused === null) return children;
  return <Command label={label} icon={icon} refused={refused} onClick={doNothing} />;
}
