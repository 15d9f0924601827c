import { Tooltip } from "@mantine/core";
import { age, moment, NOTHING } from "../format";
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
  return <Stamped value={value}>{moment(value)}</Stamped>;
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
