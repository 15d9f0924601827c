import classes from "./progress-bar.module.css";

interface Props {
  label: string;
  /** 0 to 100. */
  value: number;
}

/** Mantine's progress bar in two elements, for rows of long tables. */
export function ProgressBar({ label, value }: Props) {
  return (
    <div
      className={classes.track}
      role="progressbar"
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={value}
    >
      <div className={classes.bar} style={{ width: `${value}%` }} />
    </div>
  );
}
