import classes from "./row-checkbox.module.css";

interface Props {
  label: string;
  checked: boolean;
  onChange: (checked: boolean) => void;
}

/** Mantine's checkbox as one element: a row of a long table has to be drawn within a frame. */
export function RowCheckbox({ label, checked, onChange }: Props) {
  return (
    <input
      type="checkbox"
      className={`${classes.checkbox} mantine-focus-auto`}
      aria-label={label}
      checked={checked}
      onChange={(event) => onChange(event.currentTarget.checked)}
    />
  );
}
