import { Text, Tooltip } from "@mantine/core";
import { NOTHING } from "../format";
import classes from "./meter.module.css";

interface Props {
  label: string;
  /** 0 to 100; null when it is unknown. */
  value: number | null;
  /** The text beside the bar. */
  text: string;
  /** From here on the bar warns. */
  warnAt?: number;
}

/** A small bar for a share of something limited. */
export function Meter({ label, value, text, warnAt }: Props) {
  const share = value === null ? 0 : Math.min(100, Math.max(0, value));
  const warns = warnAt !== undefined && value !== null && value >= warnAt;
  return (
    <Tooltip label={`${label}: ${text}`} openDelay={400}>
      <div className={classes.meter}>
        {/* biome-ignore lint/a11y/useSemanticElements: browsers draw <meter> each in their own way */}
        <div
          className={classes.track}
          role="meter"
          aria-label={label}
          aria-valuemin={0}
          aria-valuemax={100}
          aria-valuenow={share}
          aria-valuetext={value === null ? "unknown" : text}
        >
          <div
            className={classes.bar}
            data-warns={warns || undefined}
            style={{ width: `${share}%` }}
          />
        </div>
        <Text span size="xs" className={classes.text}>
          {value === null ? NOTHING : text}
        </Text>
      </div>
    </Tooltip>
  );
}
