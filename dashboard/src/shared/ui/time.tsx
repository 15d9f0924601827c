import { age, dateAndTime, moment, NOTHING, timeZone } from "../format";
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

interface MomentProps extends Props {
  /** The time zone that the list names; it is left out where it applies. */
  zone?: string;
  precision?: "seconds" | "minutes";
}

/** A moment in local time, with the universal time in a tooltip. */
export function Moment({ value, zone, precision }: MomentProps) {
  if (!value) return <>{NOTHING}</>;
  return <Stamped value={value}>{moment(value, precision, zone)}</Stamped>;
}

function Stamped({ value, children }: { value: string; children: React.ReactNode }) {
  const utc = `${new Date(value).toISOString().slice(0, 19).replace("T", " ")} UTC`;
  const local = `${dateAndTime(value)} ${timeZone(value)}`;
  const title = local === utc ? utc : `${local} · ${utc}`;
  // The browser's own tooltip: long tables have hundreds of moments.
  return (
    <time dateTime={value} title={title} style={{ whiteSpace: "nowrap" }}>
      {children}
    </time>
  );
}
