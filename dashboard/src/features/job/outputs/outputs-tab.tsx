import { Button, Group, Stack, Text } from "@mantine/core";
import { getRouteApi } from "@tanstack/react-router";
import { useId, useMemo, useState } from "react";
import {
  archiveUrl,
  fileUrl,
  mayHaveOutputs,
  type Output,
  useOutputs,
} from "@/features/job/api/outputs";
import { isFinished, isRun, type Job } from "@/shared/api/types";
import { bytes, count, plural } from "@/shared/format";
import { Empty } from "@/shared/ui/empty";
import { CloseIcon, DownIcon, OpenIcon } from "@/shared/ui/icons";
import { Pending } from "@/shared/ui/problem";
import { SearchField } from "@/shared/ui/search-field";
import classes from "./outputs-tab.module.css";
import { Preview } from "./preview";
import { type Folder, type Leaf, matches, rowsOf } from "./tree";

const route = getRouteApi("/jobs/$jobId");

/** Files up to which all folders are open at first. */
const FEW = 50;
/** Rows that are added at a time. */
const ROWS = 500;

export function OutputsTab({ job }: { job: Job }) {
  const outputs = useOutputs(job);
  if (!mayHaveOutputs(job)) return <NoOutputs job={job} />;
  if (!outputs.data) return <Pending query={outputs} what="the outputs" />;
  if (outputs.data.length === 0) return <NoOutputs job={job} />;
  return <Tree job={job} files={outputs.data} />;
}

function Tree({ job, files }: { job: Job; files: Output[] }) {
  const { find = "", file: chosen } = route.useSearch();
  const navigate = route.useNavigate();
  const [toggled, setToggled] = useState<ReadonlySet<string>>(new Set());
  const [most, setMost] = useState(ROWS);
  const found = useMemo(() => files.filter(({ path }) => matches(path, find)), [files, find]);
  const openAtFirst = find !== "" || files.length <= FEW;
  const rows = useMemo(
    () =>
      rowsOf(
        found,
        (folder) => (openAtFirst || (chosen?.startsWith(folder) ?? false)) !== toggled.has(folder),
      ),
    [found, openAtFirst, chosen, toggled],
  );
  const show = (change: { find?: string | undefined; file?: string | undefined }) =>
    void navigate({ search: (old) => ({ ...old, ...change }), replace: true, resetScroll: false });
  const toggle = (folder: string) =>
    setToggled((old) => {
      const next = new Set(old);
      if (!next.delete(folder)) next.add(folder);
      return next;
    });
  const size = found.reduce((sum, file) => sum + file.size, 0);
  return (
    <Stack gap="sm">
      <Group gap="sm" justify="space-between">
        <SearchField
          value={find}
          onSearch={(text) => show({ find: text || undefined })}
          placeholder="Filter by path"
          aria-label="Filter outputs by path"
        />
        <Text size="sm" c="dimmed" className="numbers" role="status">
          {find ? `${count(found.length)} of ` : ""}
          {plural(files.length, "file")}, {bytes(size)}
        </Text>
        <Button
          component="a"
          href={archiveUrl(job.id)}
          download={`${job.id}.tar`}
          size="xs"
          variant="default"
          leftSection={<DownIcon />}
        >
          Download all (.tar)
        </Button>
      </Group>
      {rows.length === 0 ? (
        <Empty title="No path matches">Each word must be part of the path.</Empty>
      ) : (
        <ul className={`app-card ${classes.tree}`} aria-label="Outputs">
          {rows
            .slice(0, most)
            .map((row) =>
              row.kind === "folder" ? (
                <FolderRow key={row.path} folder={row} onToggle={() => toggle(row.path)} />
              ) : (
                <FileRow
                  key={row.file.path}
                  jobId={job.id}
                  leaf={row}
                  isOpen={chosen === row.file.path}
                  onToggle={(open) => show({ file: open ? row.file.path : undefined })}
                />
              ),
            )}
        </ul>
      )}
      {rows.length > most ? (
        <Button variant="default" size="xs" onClick={() => setMost(most + ROWS)}>
          Show more
        </Button>
      ) : null}
    </Stack>
  );
}

/** Indents a row by its depth. */
function indent(depth: number): React.CSSProperties {
  return { "--depth": depth } as React.CSSProperties;
}

function FolderRow({ folder, onToggle }: { folder: Folder; onToggle: () => void }) {
  const { name, isOpen, depth, files, size } = folder;
  return (
    <li className={classes.row} style={indent(depth)}>
      <button type="button" className={classes.name} aria-expanded={isOpen} onClick={onToggle}>
        {isOpen ? <OpenIcon /> : <CloseIcon />}
        <span className={classes.label}>{name}/</span>
      </button>
      <span className={classes.size}>
        {plural(files, "file")}, {bytes(size)}
      </span>
    </li>
  );
}

interface FileProps {
  jobId: string;
  leaf: Leaf;
  isOpen: boolean;
  onToggle: (open: boolean) => void;
}

function FileRow({ jobId, leaf, isOpen, onToggle }: FileProps) {
  const { file, name, depth } = leaf;
  const id = useId();
  return (
    <li>
      <div className={classes.row} style={indent(depth)} data-open={isOpen || undefined}>
        <button
          type="button"
          className={classes.name}
          aria-expanded={isOpen}
          aria-controls={isOpen ? id : undefined}
          title={`${file.path}, written by attempt ${file.attempt}`}
          onClick={() => onToggle(!isOpen)}
        >
          <span className={classes.label}>{name}</span>
          {file.rank > 0 ? <span className="small dimmed">host of rank {file.rank}</span> : null}
        </button>
        <span className={classes.size}>{bytes(file.size)}</span>
        <a
          className={`${classes.download} app-action`}
          href={fileUrl(jobId, file.path)}
          download={name}
          aria-label={`Download ${file.path}`}
          title="Download"
        >
          <DownIcon />
        </a>
      </div>
      {isOpen ? (
        <section id={id} className={classes.preview} aria-label={`Preview of ${file.path}`}>
          <Preview jobId={jobId} file={file} />
        </section>
      ) : null}
    </li>
  );
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
