import { Modal } from "@mantine/core";
import { useEffect, useState } from "react";
import type { Trace } from "@/features/job/api/profiles";
import { useTrace } from "@/features/job/api/traces";
import type { Job } from "@/shared/api/types";
import { count } from "@/shared/format";
import { Pending } from "@/shared/ui/problem";
import { toSpeedscope } from "./speedscope-file";
import classes from "./trace-viewer.module.css";

interface Props {
  job: Job;
  trace: Trace;
  onClose: () => void;
}

/** A trace in speedscope, over the whole page. */
export function TraceViewer({ job, trace, onClose }: Props) {
  const { rank, first_step, last_step } = trace;
  const title = `${job.name} · rank ${rank} · steps ${count(first_step)} to ${count(last_step)}`;
  return (
    <Modal
      opened
      onClose={onClose}
      title={title}
      closeButtonProps={{ "aria-label": "Close the trace" }}
      fullScreen
      // Its keys are speedscope's.
      closeOnEscape={false}
      classNames={{ content: classes.content, body: classes.body }}
    >
      <Speedscope jobId={job.id} path={trace.path} title={title} />
    </Modal>
  );
}

function Speedscope({ jobId, path, title }: { jobId: string; path: string; title: string }) {
  const file = useTrace(jobId, path, (trace) => {
    return new Blob([JSON.stringify(toSpeedscope(trace, title))], { type: "application/json" });
  });
  const url = useObjectUrl(file.data);
  if (url === undefined) return <Pending query={file} what="the trace" height={240} />;
  return (
    <iframe
      className={classes.frame}
      title="Trace in speedscope"
      src={`/speedscope/index.html#profileURL=${encodeURIComponent(url)}`}
    />
  );
}

function useObjectUrl(blob: Blob | undefined): string | undefined {
  const [url, setUrl] = useState<string>();
  useEffect(() => {
    if (blob === undefined) return;
    const made = URL.createObjectURL(blob);
    setUrl(made);
    return () => {
      setUrl(undefined);
      URL.revokeObjectURL(made);
    };
  }, [blob]);
  return url;
}
