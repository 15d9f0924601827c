import { Button, Group, Stack, Text, Textarea, TextInput } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { useEffect, useState } from "react";
import { ApiError } from "@/shared/api/problem";
import type { Report } from "@/shared/api/types";
import { Confirm } from "@/shared/dialogs/confirm";
import { clearDraft, type Draft, readDraft, writeDraft } from "@/shared/draft";
import { PageHeading } from "@/shared/page/heading";
import { AnchorLink } from "@/shared/ui/links";
import { Problem } from "@/shared/ui/problem";
import { useReportCommands } from "./api";
import { ReportBody } from "./report-body";
import classes from "./reports.module.css";

const TYPING_MS = 400;
const MAX_TEXT = 50_000;
const HELP = "Markdown. A fenced block named chart is a live chart: docs/reports.md has its keys.";
const EXAMPLE = `What was tried, and what came of it.

\`\`\`chart
query: state:completed
metric: loss
\`\`\`
`;

/** What is being written, and the version that it is to replace. */
interface Written {
  version: number;
  title: string;
  text: string;
}

interface Props {
  /** Left out: a new one. */
  report?: Report;
  /** A text to add at the end. */
  added?: string | undefined;
  /** It was saved, with its id if it is new, or left. */
  onDone: (id?: string) => void;
}

/** A report that is written, beside how it will be shown. */
export function ReportForm({ report, added, onDone }: Props) {
  const draft: Draft = `report.${report?.id ?? "new"}`;
  const [initial] = useState(() => startOf(report, readDraft(draft), added));
  const [written, setWritten] = useState(initial);
  const [shown] = useDebouncedValue(written.text, TYPING_MS);
  const { create, change } = useReportCommands();
  const { title, text, version } = written;
  const isChanged = written !== initial || added !== undefined || readDraft(draft) !== null;
  useEffect(() => {
    if (isChanged) writeDraft(draft, JSON.stringify(written));
  }, [draft, written, isChanged]);
  const done = (id?: string) => {
    clearDraft(draft);
    onDone(id);
  };
  const save = (over = version) => {
    if (report === undefined) {
      create.mutate({ body: { title, text } }, { onSuccess: ({ id }) => done(id) });
    } else {
      const body = { title, text, version: over };
      change.mutate({ path: { report_id: report.id }, body }, { onSuccess: () => done() });
    }
  };
  const error = create.error ?? change.error;
  const isConflict = error instanceof ApiError && error.status === 409 && report !== undefined;
  return (
    <Stack gap="md">
      <PageHeading title={report ? "Edit report" : "New report"} />
      <Group align="flex-end">
        <TextInput
          label="Title"
          required
          maxLength={128}
          style={{ flex: "1 1 240px" }}
          value={title}
          onChange={({ currentTarget: { value } }) => setWritten({ ...written, title: value })}
        />
        <Confirm
          title="Discard the changes?"
          text="What you wrote here is not saved."
          action="Discard"
          onConfirm={() => done()}
        >
          {(ask) => (
            <Button variant="default" onClick={isChanged ? ask : () => done()}>
              Discard
            </Button>
          )}
        </Confirm>
        <Button
          disabled={title.trim() === ""}
          loading={create.isPending || change.isPending}
          onClick={() => save()}
        >
          Save
        </Button>
      </Group>
      {error ? <Problem error={error} what="Could not save the report" /> : null}
      {isConflict ? (
        <Group gap="sm">
          <AnchorLink
            to="/reports/$reportId"
            params={{ reportId: report.id }}
            target="_blank"
            size="sm"
          >
            Open the newest version
          </AnchorLink>
          <Button
            size="compact-xs"
            variant="default"
            disabled={report.version === version}
            onClick={() => save(report.version)}
          >
            Replace it with mine
          </Button>
        </Group>
      ) : null}
      <div className={classes.editor}>
        <Textarea
          label="Text"
          description={HELP}
          rows={26}
          resize="vertical"
          maxLength={MAX_TEXT}
          className={classes.text ?? ""}
          value={text}
          onChange={({ currentTarget: { value } }) => setWritten({ ...written, text: value })}
        />
        <section className={`app-card ${classes.preview}`} aria-label="Preview">
          <Text size="xs" c="dimmed">
            Preview
          </Text>
          <ReportBody text={shown} />
        </section>
      </div>
    </Stack>
  );
}

function startOf(report: Report | undefined, draft: string | null, added?: string): Written {
  const start = (draft && read(draft)) || {
    version: report?.version ?? 1,
    title: report?.title ?? "",
    text: report?.text ?? (added ? "" : EXAMPLE),
  };
  return added ? { ...start, text: `${start.text}\n${added}`.trimStart() } : start;
}

function read(draft: string): Written | null {
  try {
    return JSON.parse(draft);
  } catch {
    return null;
  }
}
