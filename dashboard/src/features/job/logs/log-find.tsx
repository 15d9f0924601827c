import { Button, Group, Text } from "@mantine/core";
import { useEffect, useMemo, useRef } from "react";
import { type LogFilter, searchLogs } from "@/features/job/api/logs";
import { count } from "@/shared/format";
import type { JobLive } from "@/shared/live/job-live";
import { Signal, useSignal } from "@/shared/live/signal";
import { IconButton } from "@/shared/ui/icon-button";
import { DownIcon, UpIcon } from "@/shared/ui/icons";
import { SearchField } from "@/shared/ui/search-field";
import { lineId } from "./line-id";
import { LogSearch, MAX_MATCHES, type Matches } from "./log-search";

interface Props {
  jobId: string;
  live: JobLive;
  filter: LogFilter;
  find: string;
  /** The highlighted line. */
  chosen: string | undefined;
  onFind: (text: string) => void;
  onChoose: (line: string) => void;
}

/** Names of exceptions end in it. */
const ERROR = "Error";
const NOTHING = new Signal<Matches>({ lines: [], done: true, error: null });

/** Searches all stored lines for a text and steps through the matches. */
export function LogFind({ jobId, live, filter, find, chosen, onFind, onChoose }: Props) {
  const found = useSearch(jobId, live, filter, find);
  const at = chosen === undefined ? -1 : found.lines.findIndex((line) => lineId(line) === chosen);
  const step = (by: 1 | -1): void => {
    const { length } = found.lines;
    if (length === 0) return;
    const next = at < 0 ? (by === 1 ? 0 : length - 1) : (at + by + length) % length;
    const line = found.lines[next];
    if (line) onChoose(lineId(line));
  };
  // Enter pressed before the search has run goes to a match as soon as there is one.
  const pending = useRef<{ text: string; by: 1 | -1 } | null>(null);
  useEffect(() => {
    if (pending.current?.text !== find) return;
    const { by } = pending.current;
    if (by === -1 && !found.done) return;
    if (found.lines.length > 0 || found.done) pending.current = null;
    step(by);
  });
  const go = (text: string, by: 1 | -1): void => {
    if (text === find) step(by);
    else pending.current = { text, by };
  };
  return (
    <Group gap={4} role="search" aria-label="Search the logs">
      <SearchField
        w={210}
        placeholder="Find"
        aria-label="Find in the logs"
        value={find}
        onSearch={onFind}
        onEnter={(text, shift) => go(text, shift ? -1 : 1)}
      />
      <IconButton
        label="Previous (Shift + Enter)"
        name="Previous match"
        disabled={found.lines.length === 0}
        onClick={() => step(-1)}
      >
        <UpIcon />
      </IconButton>
      <IconButton
        label="Next (Enter)"
        name="Next match"
        disabled={found.lines.length === 0}
        onClick={() => step(1)}
      >
        <DownIcon />
      </IconButton>
      <Button
        size="compact-xs"
        variant="default"
        onClick={() => {
          go(ERROR, -1);
          onFind(ERROR);
        }}
      >
        Last error
      </Button>
      <Text size="xs" c="dimmed" className="numbers nowrap" role="status" aria-label="Matches">
        {status(find, found, at)}
      </Text>
    </Group>
  );
}

function status(find: string, found: Matches, at: number): string {
  if (find === "") return "";
  if (found.error) return "search failed";
  const { length } = found.lines;
  if (length === 0) return found.done ? "no matches" : "searching…";
  const all = `${count(length)}${length >= MAX_MATCHES ? "+" : found.done ? "" : "…"}`;
  return at < 0 ? `${all} ${length === 1 ? "match" : "matches"}` : `${count(at + 1)} of ${all}`;
}

function useSearch(jobId: string, live: JobLive, filter: LogFilter, find: string): Matches {
  const search = useMemo(
    () =>
      find === ""
        ? null
        : new LogSearch((after, limit) => searchLogs(jobId, filter, find, after, limit)),
    [jobId, filter, find],
  );
  useEffect(() => {
    if (search === null) return;
    search.start();
    const unsubscribe = live.logVersion.subscribe(() => search.wake());
    return () => {
      unsubscribe();
      search.stop();
    };
  }, [search, live]);
  return useSignal(search?.found ?? NOTHING);
}
