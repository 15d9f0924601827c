import { Text } from "@mantine/core";
import { memo, useCallback, useEffect, useId, useMemo } from "react";
import { fileUrl } from "@/features/job/api/outputs";
import { bytes, plural } from "@/shared/format";
import { type Column, Table } from "@/shared/table/table";
import { CloseIcon, DownIcon, OpenIcon } from "@/shared/ui/icons";
import classes from "./outputs-tab.module.css";
import { Preview } from "./preview";
import { keyOf, type Row } from "./tree";

interface Props {
  jobId: string;
  rows: readonly Row[];
  /** Only files of one host are shown, which need not name it. */
  isOneHost: boolean;
  /** Called with the rows on the screen. */
  onRows: (rows: readonly Row[]) => void;
  /** Called when more pages of a folder are needed, with how many in all. */
  onMore: (folder: string, pages: number) => void;
  /** Opens or closes a folder. */
  onFolder: (folder: string, isOpen: boolean) => void;
  /** Shows what is in a file. */
  onFile: (path: string | undefined) => void;
}

/** The open folders and files of a job, of which only the rows on the screen are drawn. */
export const OutputTable = memo(function OutputTable(props: Props) {
  const { jobId, rows, isOneHost, onRows, onMore, onFolder, onFile } = props;
  const preview = useId();
  const columns = useMemo(
    (): Column<Row>[] => [
      {
        id: "name",
        header: "Name",
        rowHeader: true,
        cell: (row) => (
          <Name
            row={row}
            preview={preview}
            isOneHost={isOneHost}
            onFolder={onFolder}
            onFile={onFile}
          />
        ),
      },
      { id: "size", header: "Size", right: true, short: true, width: "6.5rem", cell: sizeOf },
      {
        id: "download",
        header: "Download",
        hidden: true,
        width: "3.25rem",
        cell: (row) => <Download jobId={jobId} row={row} />,
      },
    ],
    [jobId, preview, isOneHost, onFolder, onFile],
  );
  const onScreen = useCallback(
    (first: number, last: number) => onRows(rows.slice(first, last + 1)),
    [onRows, rows],
  );
  return (
    <Table
      label="Outputs"
      columns={columns}
      rows={rows}
      rowKey={keyOf}
      rowProps={(row) => ({ "data-open": (row.kind === "file" && row.isOpen) || undefined })}
      whole={(row) => {
        if (row.kind === "more") return <Loading row={row} onMore={onMore} />;
        if (row.kind !== "preview") return null;
        return (
          <section id={preview} aria-label={`Preview of ${row.file.path}`}>
            <Preview jobId={jobId} file={row.file} />
          </section>
        );
      }}
      className={classes.tree}
      virtual
      onScreen={onScreen}
    />
  );
});

interface NameProps extends Pick<Props, "isOneHost" | "onFolder" | "onFile"> {
  row: Row;
  /** The id of the preview. */
  preview: string;
}

function Name({ row, preview, isOneHost, onFolder, onFile }: NameProps) {
  if (row.kind === "folder") {
    const { path, name, files, isOpen, depth } = row;
    return (
      <button
        type="button"
        className={classes.name}
        style={indent(depth)}
        aria-expanded={isOpen}
        onClick={() => onFolder(path, !isOpen)}
      >
        {isOpen ? <OpenIcon /> : <CloseIcon />}
        <span className={classes.label}>
          {name} <span className={classes.note}>{plural(files, "file")}</span>
        </span>
      </button>
    );
  }
  if (row.kind !== "file") return null;
  const { file, name, isOpen, depth } = row;
  return (
    <button
      type="button"
      className={classes.name}
      style={indent(depth)}
      aria-expanded={isOpen}
      aria-controls={isOpen ? preview : undefined}
      title={`${file.path}, written by attempt ${file.attempt}`}
      onClick={() => onFile(isOpen ? undefined : file.path)}
    >
      <span className={classes.label}>
        {name}
        {file.rank > 0 && !isOneHost ? (
          <span className={classes.note}> host of rank {file.rank}</span>
        ) : null}
      </span>
    </button>
  );
}

function sizeOf(row: Row): string {
  if (row.kind === "folder") return bytes(row.size);
  return row.kind === "file" ? bytes(row.file.size) : "";
}

function Download({ jobId, row }: { jobId: string; row: Row }) {
  if (row.kind !== "file") return null;
  const { path, rank } = row.file;
  return (
    <a
      className={`${classes.download} app-action`}
      href={fileUrl(jobId, path, rank)}
      download={path.slice(path.lastIndexOf("/") + 1)}
      aria-label={`Download ${path}`}
      title="Download"
    >
      <DownIcon />
    </a>
  );
}

interface LoadingProps extends Pick<Props, "onMore"> {
  row: Row & { kind: "more" };
}

/** Asks for the next page of its folder when it comes on the screen. */
function Loading({ row, onMore }: LoadingProps) {
  const { folder, pages, depth } = row;
  useEffect(() => onMore(folder, pages + 1), [folder, pages, onMore]);
  return (
    <Text size="xs" c="dimmed" style={indent(depth)} className={classes.loading ?? ""}>
      Loading…
    </Text>
  );
}

/** Indents a row by its depth. */
function indent(depth: number): React.CSSProperties {
  return { "--depth": depth } as React.CSSProperties;
}
