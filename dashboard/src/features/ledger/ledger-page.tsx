import { Button, Group, SegmentedControl, Stack, Text } from "@mantine/core";
import { keepPreviousData, useInfiniteQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { useMemo } from "react";
import { readLedgerInfiniteOptions } from "@/client/@tanstack/react-query.gen";
import { BY_CURSOR, itemsOf } from "@/shared/api/pages";
import { PageHeading } from "@/shared/page/heading";
import { LoadMore } from "@/shared/page/load-more";
import { Table } from "@/shared/table/table";
import { useTitle } from "@/shared/title";
import { Empty } from "@/shared/ui/empty";
import { DownIcon } from "@/shared/ui/icons";
import { AnchorLink } from "@/shared/ui/links";
import { Pending } from "@/shared/ui/problem";
import { type By, columnsOf, keyOf } from "./columns";
import classes from "./ledger-page.module.css";
import { DAYS, type Days, DEFAULT_BY, DEFAULT_DAYS } from "./search";

const BY: { value: By; label: string }[] = [
  { value: "user", label: "Users" },
  { value: "project", label: "Projects" },
  { value: "job", label: "Jobs" },
];
const route = getRouteApi("/ledger");

export default function LedgerPage() {
  useTitle("Ledger");
  const { by = DEFAULT_BY, days = DEFAULT_DAYS } = route.useSearch();
  const navigate = route.useNavigate();
  const since = useMemo(() => new Date(Date.now() - days * 86_400_000).toISOString(), [days]);
  const ledger = useInfiniteQuery({
    ...readLedgerInfiniteOptions({ query: { by, since } }),
    ...BY_CURSOR,
    placeholderData: keepPreviousData,
  });
  const first = ledger.data?.pages[0];
  const items = itemsOf(ledger.data, keyOf);
  const columns = useMemo(() => (first ? columnsOf(first.by, first.currency) : []), [first]);
  return (
    <Stack gap="md">
      <PageHeading title="Ledger">
        <Group gap="sm">
          <AnchorLink to="/what-if" size="sm">
            What if there were more nodes?
          </AnchorLink>
          <Button
            component="a"
            size="xs"
            variant="default"
            leftSection={<DownIcon />}
            href={`/api/v1/ledger?${new URLSearchParams({ by, since, format: "csv" })}`}
            download={`ledger-by-${by}.csv`}
          >
            CSV
          </Button>
        </Group>
      </PageHeading>
      <Group gap="sm">
        <SegmentedControl
          size="xs"
          aria-label="Lines"
          data={BY}
          value={by}
          onChange={(value) => void navigate({ search: (now) => ({ ...now, by: value as By }) })}
        />
        <SegmentedControl
          size="xs"
          aria-label="Time"
          data={DAYS.map((value) => ({ value: String(value), label: `${value} d` }))}
          value={String(days)}
          onChange={(value) =>
            void navigate({ search: (now) => ({ ...now, days: Number(value) as Days }) })
          }
        />
      </Group>
      <Pending query={ledger} what="the ledger" height={240} />
      {first && items.length === 0 ? (
        <Empty title="No device-hours">No attempt held devices in this time.</Empty>
      ) : null}
      {first && items.length > 0 ? (
        <>
          <Table
            label="Ledger"
            columns={columns}
            rows={[first.total, ...items]}
            rowKey={keyOf}
            className={classes.table}
            cards
            virtual
          />
          <Text size="xs" c="dimmed">
            In device-hours. Redone: steps that were taken again; idle: outside steps; not measured:
            scripts that do not report every step, and the newest part of what still runs.
          </Text>
        </>
      ) : null}
      <LoadMore list={ledger} />
    </Stack>
  );
}
