import { Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { readLedgerOptions } from "@/client/@tanstack/react-query.gen";
import type { Job } from "@/shared/api/types";
import { hours } from "@/shared/format";
import { AnchorLink } from "@/shared/ui/links";

/** How often the coordinator counts them, at most. */
const POLL_MS = 30_000;

/** The job's line of the ledger; nothing before its first attempt. */
export function DeviceHours({ job }: { job: Job }) {
  const ledger = useQuery({
    ...readLedgerOptions({ query: { by: "job", job_id: job.id, since: job.created_at } }),
    refetchInterval: POLL_MS,
  });
  const line = ledger.data?.items[0];
  if (!line) return null;
  const parts = [
    [line.useful_hours, "useful"],
    [line.data_hours, "waiting for data"],
    [line.redone_hours, "redone"],
    [line.idle_hours, "idle"],
    [line.not_measured_hours || null, "not measured"],
  ] as const;
  const known = parts.filter(([value]) => value !== null);
  const energy = line.energy_kwh === null ? [] : [`${hours(line.energy_kwh)} kWh`];
  const money = line.cost === null ? [] : [`${hours(line.cost)} ${ledger.data?.currency}`];
  return (
    <Text size="sm" className="numbers">
      {hours(line.device_hours)}{" "}
      <AnchorLink to="/ledger" search={{ by: "job" }} size="sm" underline="always">
        device-hours
      </AnchorLink>
      : {known.map(([value, label]) => `${hours(value)} ${label}`).join(", ")}
      {[...energy, ...money].map((text) => ` · ${text}`).join("")}
    </Text>
  );
}
