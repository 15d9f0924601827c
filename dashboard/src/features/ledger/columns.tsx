import { Text } from "@mantine/core";
import type { Account, LedgerRow, LedgerSums } from "@/client";
import { count, hours, NOTHING, percent } from "@/shared/format";
import { IdText } from "@/shared/page/id-text";
import type { Column } from "@/shared/table/table";
import { AnchorLink } from "@/shared/ui/links";

export type By = Account;
/** A line of the ledger, or the sums of all. */
export type Line = LedgerSums & Partial<LedgerRow>;

const HEADERS: Record<By, string> = { job: "Job", user: "User", project: "Project" };
const PARTS = [
  ["device_hours", "Device-hours"],
  ["useful_hours", "Useful"],
  ["data_hours", "Waiting for data"],
  ["redone_hours", "Redone"],
  ["idle_hours", "Idle"],
  ["not_measured_hours", "Not measured"],
] as const;

export function keyOf({ job_id, name }: Line): string {
  return job_id ?? (name === undefined ? "total" : `name ${name}`);
}

export function columnsOf(by: By, currency: string | null): Column<Line>[] {
  return [
    { id: "name", header: HEADERS[by], rowHeader: true, cell: (line) => <Name line={line} /> },
    ...(by === "job"
      ? []
      : [{ id: "jobs", header: "Jobs", right: true, cell: ({ jobs }: Line) => count(jobs) }]),
    ...PARTS.map(([id, header]) => ({
      id,
      header,
      right: true,
      cell: (line: Line) => hours(line[id]),
    })),
    {
      id: "energy_kwh",
      header: "kWh",
      right: true,
      cell: (line: Line) => <Energy line={line} />,
    },
    ...(currency === null
      ? []
      : [{ id: "cost", header: currency, right: true, cell: ({ cost }: Line) => hours(cost) }]),
  ];
}

/** With the share of the time that it was measured in, if that is not all. */
function Energy({ line: { energy_kwh, metered_hours, gpu_hours } }: { line: Line }) {
  const share = gpu_hours > 0 ? (100 * metered_hours) / gpu_hours : 0;
  if (energy_kwh === null || share >= 95) return hours(energy_kwh);
  return (
    <span>
      {hours(energy_kwh)}{" "}
      <Text span size="xs" c="dimmed" title="Share of the GPU-hours whose power was measured">
        in {percent(share)}
      </Text>
    </span>
  );
}

function Name({ line: { job_id, name, user, project } }: { line: Line }) {
  if (name === undefined) {
    return (
      <Text span size="sm" fw={600}>
        Total
      </Text>
    );
  }
  if (!job_id) return name ?? NOTHING;
  const owner = [user, project].filter(Boolean).join(" · ");
  return (
    <>
      <AnchorLink to="/jobs/$jobId" params={{ jobId: job_id }} size="sm" fw={600}>
        {name}
      </AnchorLink>{" "}
      <IdText id={job_id} />
      {owner === "" ? null : (
        <Text size="xs" c="dimmed">
          {owner}
        </Text>
      )}
    </>
  );
}
