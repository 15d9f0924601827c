import { Tooltip } from "@mantine/core";
import { age, NOTHING } from "../format";
import { useDerivedNow } from "../now";

interface Props {
  value: string | null | undefined;
}

/** How long ago something was: "4 min ago", with the local and the universal time in a tooltip. */
export function Ago({ value }: Props) {
  const text = useDerivedNow((now) => (value ? age((now - Date.parse(value)) / 1000) : ""));
  if (!value) return <>{NOTHING}</>;
  return <Stamped value={value}>{text} ago</Stamped>;
}

/** A moment in local time, with the universal time in a tooltip. */
export function Moment({ value }: Props) {
  if (!value) return <>{NOTHING}</>;
  const when = new Date(value);
  const today = when.toDateString() === new Date().toDateString();
  return (
    <Stamped value={value}>{today ? when.toLocaleTimeString() : when.toLocaleString()}</Stamped>
  );
}

/** A time as the coordinator's messages write it: "14:20 UTC". */
export function UtcTime({ value }: { value: string }) {
  const today = useDerivedNow((now) => new Date(now).toISOString().slice(0, 10));
  const when = new Date(value).toISOString();
  const day = new Date(value).toLocaleDateString("en-US", {
    month: "short",
    day: "2-digit",
    timeZone: "UTC",
  });
  const clock = `${when.slice(11, 16)} UTC`;
  return <Stamped value={value}>{when.startsWith(today) ? clock : `${clock} on ${day}`}</Stamped>;
}

function Stamped({ value, children }: { value: string; children: React.ReactNode }) {
  const when = new Date(value);
  const utc = `${when.toISOString().slice(0, 19).replace("T", " ")} UTC`;
  return (
    <Tooltip label={`${when.toLocaleString()} · ${utc}`} openDelay={300}>
      <time dateTime={value} style={{ whiteSpace: "nowrap" }}>
        {children}
      </time>
    </Tooltip>
  );
}
