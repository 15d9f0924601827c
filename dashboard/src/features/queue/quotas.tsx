import { Text, Title } from "@mantine/core";
import type { Quota } from "@/shared/api/types";
import { count, plural } from "@/shared/format";
import { Meter } from "@/shared/ui/meter";
import { Problem } from "@/shared/ui/problem";
import { type Quotas, useQuotas } from "./api/read-quotas";
import classes from "./quotas.module.css";

/** What projects and users hold of what they may hold; nothing where nobody has either. */
export function QuotaSection() {
  const quotas = useQuotas();
  if (quotas.error) {
    return (
      <Problem
        error={quotas.error}
        what="The quotas could not be read"
        onRetry={() => void quotas.refetch()}
      />
    );
  }
  if (!quotas.data || quotas.data.items.length === 0) return null;
  return (
    <section aria-labelledby="quotas">
      <Title order={2} size="h4" id="quotas" mb={4}>
        Projects and users
      </Title>
      <Text size="xs" c="dimmed" mb="xs">
        {toldOthers(quotas.data.others)}
      </Text>
      <div className="app-card">
        <table className={`app-table ${classes.quotas}`} aria-labelledby="quotas">
          <thead>
            <tr>
              <th scope="col">Whose</th>
              <th scope="col">Devices held</th>
              <th scope="col" className={`right ${classes.waiting}`}>
                Waiting
              </th>
            </tr>
          </thead>
          <tbody>
            {quotas.data.items.map((quota) => (
              <Row key={`${quota.kind} ${quota.name}`} quota={quota} />
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function Row({ quota }: { quota: Quota }) {
  const { kind, name, limit, used, waiting } = quota;
  return (
    <tr>
      <td className={classes.name}>
        <Text span size="xs" c="dimmed">
          {kind}
        </Text>{" "}
        {name}
      </td>
      <td>
        {limit === null ? (
          <Text span size="xs">
            {plural(used, "device")}, no limit
          </Text>
        ) : (
          <Meter
            label={`Quota of ${kind} ${name}`}
            value={limit > 0 ? (100 * used) / limit : 100}
            text={`${count(used)} of ${count(limit)}`}
            warnAt={100}
          />
        )}
      </td>
      <td className="right">{count(waiting)}</td>
    </tr>
  );
}

/** What those may hold that are not listed. */
export function toldOthers({ project, user }: Quotas["others"]): string {
  const told = [
    project === null ? "" : `Each other project may hold ${plural(project, "device")} at once.`,
    user === null ? "" : `Each other user may hold ${plural(user, "device")} at once.`,
  ].filter((text) => text !== "");
  return told.join(" ") || "Whoever has no quota may hold all devices.";
}
