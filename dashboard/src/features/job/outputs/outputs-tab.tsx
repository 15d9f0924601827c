import { Button, Group, Select, Skeleton, Stack, Text } from "@mantine/core";
import { getRouteApi } from "@tanstack/react-router";
import { useCallback, useState } from "react";
import {
  archiveUrl,
  mayHaveOutputs,
  type OutputPage,
  type OutputTotals,
  type PageAddress,
  pageKey,
  useOutputPages,
} from "@/features/job/api/outputs";
import { isFinished, isRun, type Job } from "@/shared/api/types";
import { bytes, plural } from "@/shared/format";
import { useLastDefined } from "@/shared/last-defined";
import { Empty } from "@/shared/ui/empty";
import { DownIcon } from "@/shared/ui/icons";
import { Pending } from "@/shared/ui/problem";
import { SearchField } from "@/shared/ui/search-field";
import { OutputTable } from "./output-table";
import { type Row, rowsOf } from "./tree";

const route = getRouteApi("/jobs/$jobId");

/** Files up to which all folders are open at first. */
const FEW = 50;
/** With so many hosts their list has a field to type in. */
const SEARCHABLE_FROM = 20;
const ROOT: PageAddress = { folder: "", cursor: undefined };

interface Tree {
  rows: Row[];
  totals: OutputTotals;
}

/** Of the address of the page. */
interface Change {
  find?: string | undefined;
  file?: string | undefined;
  host?: number | undefined;
}

export function OutputsTab({ job }: { job: Job }) {
  const { find = "", file: chosen, host: rank } = route.useSearch();
  const navigate = route.useNavigate();
  const [choices, setChoices] = useState<ReadonlyMap<string, boolean>>(new Map());
  const [pages, setPages] = useState<ReadonlyMap<string, number>>(new Map());
  const [onScreen, setOnScreen] = useState<ReadonlySet<string>>(new Set());
  const listKey = JSON.stringify([find, rank]);

  const walk = (read: (page: PageAddress) => OutputPage | undefined): Tree | undefined => {
    const totals = read(ROOT)?.totals;
    if (!totals) return undefined;
    const openAtFirst = totals.files <= FEW;
    const rows = rowsOf(read, {
      isOpen: (folder) =>
        choices.get(folder) ?? (openAtFirst || (chosen?.startsWith(folder) ?? false)),
      pagesOf: (folder) => pages.get(`${listKey} ${folder}`) ?? 1,
      file: chosen,
    });
    return { rows, totals };
  };
  const isPolled = (page: PageAddress) => {
    const key = pageKey(page);
    return key === pageKey(ROOT) || onScreen.has(key);
  };
  const { walked, failed } = useOutputPages(job, { rank, find }, walk, isPolled);
  // While another filter's files are loaded, the last ones stay.
  const tree = useLastDefined(walked);

  const onRows = useCallback((rows: readonly Row[]) => {
    const next = new Set(rows.map(({ page }) => pageKey(page)));
    setOnScreen((old) => (isSame(old, next) ? old : next));
  }, []);
  const onMore = useCallback(
    (folder: string, wanted: number) => {
      const key = `${listKey} ${folder}`;
      setPages((old) => ((old.get(key) ?? 1) < wanted ? new Map(old).set(key, wanted) : old));
    },
    [listKey],
  );
  const onFolder = useCallback(
    (folder: string, isOpen: boolean) => setChoices((old) => new Map(old).set(folder, isOpen)),
    [],
  );
  const show = useCallback(
    (change: Change) =>
      void navigate({
        search: (old) => ({ ...old, ...change }),
        replace: true,
        resetScroll: false,
      }),
    [navigate],
  );
  const onFile = useCallback((file: string | undefined) => show({ file }), [show]);

  if (!mayHaveOutputs(job)) return <NoOutputs job={job} />;
  const problem = failed ? <Pending query={failed} what="the outputs" /> : null;
  if (!tree) return problem ?? <Skeleton height={160} />;
  const { rows, totals } = tree;
  if (totals.ranks.length === 0) return <NoOutputs job={job} />;
  return (
    <Stack gap="sm">
      <Group gap="sm" justify="space-between">
        <Group gap="sm">
          <SearchField
            value={find}
            onSearch={(text) => show({ find: text || undefined })}
            placeholder="Filter by path"
            aria-label="Filter outputs by path"
          />
          <HostSelect ranks={totals.ranks} rank={rank} onChange={(host) => show({ host })} />
        </Group>
        <Text size="sm" c="dimmed" className="numbers" role="status">
          {find ? "Found " : ""}
          {plural(totals.files, "file")}, {bytes(totals.size)}
        </Text>
        <Button
          component="a"
          href={archiveUrl(job.id, rank)}
          download={`${job.id}.tar`}
          size="xs"
          variant="default"
          leftSection={<DownIcon />}
        >
          {rank === undefined ? "Download all (.tar)" : "Download all of the host (.tar)"}
        </Button>
      </Group>
      {problem}
      {totals.files > 0 ? (
        <OutputTable
          jobId={job.id}
          rows={rows}
          isOneHost={rank !== undefined}
          onRows={onRows}
          onMore={onMore}
          onFolder={onFolder}
          onFile={onFile}
        />
      ) : find ? (
        <Empty title="No path matches">Each word must be part of the path.</Empty>
      ) : (
        <Empty title="No outputs of this host">Choose another host.</Empty>
      )}
    </Stack>
  );
}

interface HostProps {
  ranks: readonly number[];
  rank: number | undefined;
  onChange: (rank: number | undefined) => void;
}

/** Chooses the host whose files are shown; nothing where only one has any. */
function HostSelect({ ranks, rank, onChange }: HostProps) {
  if (ranks.length < 2 && rank === undefined) return null;
  const known = rank === undefined || ranks.includes(rank) ? ranks : [...ranks, rank];
  return (
    <Select
      size="xs"
      w={150}
      aria-label="Host"
      data={[
        { value: "", label: "All hosts" },
        ...known.map((each) => ({ value: String(each), label: `Host of rank ${each}` })),
      ]}
      value={rank === undefined ? "" : String(rank)}
      allowDeselect={false}
      searchable={known.length > SEARCHABLE_FROM}
      onChange={(value) => onChange(value ? Number(value) : undefined)}
    />
  );
}

function isSame(a: ReadonlySet<string>, b: ReadonlySet<string>): boolean {
  return a.size === b.size && [...a].every((each) => b.has(each));
}

function NoOutputs({ job }: { job: Job }) {
  if (isRun(job)) {
    return <Empty title="No outputs">Artifacts that the run's client logs appear here.</Empty>;
  }
  return (
    <Empty title={isFinished(job) ? "No outputs" : "No outputs yet"}>
      Files that the job writes to the folder <code>TRAINHALL_OUTPUTS</code> are kept here, and so
      are those in its working folder if its code was uploaded. Hosts send them every few minutes
      and at the end of an attempt.
    </Empty>
  );
}
