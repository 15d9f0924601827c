import { Skeleton, Stack, Tabs } from "@mantine/core";
import { getRouteApi } from "@tanstack/react-router";
import { lazy, Suspense } from "react";
import { useJob } from "@/shared/api/get-job";
import { ApiError } from "@/shared/api/problem";
import type { Job } from "@/shared/api/types";
import type { JobLive } from "@/shared/live/job-live";
import { LiveContext, useJobLive } from "@/shared/live/use-job-live";
import { useTitle } from "@/shared/title";
import { Empty } from "@/shared/ui/empty";
import { AnchorLink } from "@/shared/ui/links";
import { Problem } from "@/shared/ui/problem";
import { CheckpointsTab } from "./checkpoints-tab";
import { GradientsTab } from "./gradients-tab";
import { Header } from "./header";
import classes from "./job-page.module.css";
import { LogsTab } from "./logs-tab";
import { firstTab, isTab, TABS, type Tab } from "./tabs";
import { TimelineTab } from "./timeline-tab";

// The plotting library comes with the curves alone.
const CurvesTab = lazy(() => import("./curves-tab"));
// And the writer of YAML with the spec.
const SpecTab = lazy(() => import("./spec-tab"));

const route = getRouteApi("/jobs/$jobId");

const LABELS: Record<Tab, string> = {
  curves: "Curves",
  gradients: "Gradients",
  logs: "Logs",
  timeline: "What happened",
  checkpoints: "Checkpoints",
  spec: "Spec",
};

export default function JobPage() {
  const { jobId } = route.useParams();
  const job = useJob(jobId);
  const live = useJobLive(jobId);
  useTitle(job.data ? `${job.data.name} · ${job.data.state}` : "Job", job.data?.state);
  if (job.error instanceof ApiError && job.error.status === 404) return <UnknownJob id={jobId} />;
  if (job.data === undefined) {
    if (job.error) {
      return (
        <Problem
          error={job.error}
          what="The job could not be read"
          onRetry={() => void job.refetch()}
        />
      );
    }
    return <Skeleton height={420} />;
  }
  if (live === null) return <Skeleton height={420} />;
  return (
    <LiveContext value={live}>
      <Stack gap="lg">
        <Header job={job.data} live={live} />
        <JobTabs job={job.data} live={live} />
      </Stack>
    </LiveContext>
  );
}

function JobTabs({ job, live }: { job: Job; live: JobLive }) {
  const first = firstTab(job);
  const { tab = first } = route.useSearch();
  const navigate = route.useNavigate();
  return (
    <Tabs
      value={tab}
      keepMounted={false}
      onChange={(next) => {
        if (!isTab(next)) return;
        void navigate({
          search: (old) => ({ ...old, tab: next === first ? undefined : next }),
          resetScroll: false,
        });
      }}
    >
      <Tabs.List aria-label="Parts of the job" className={classes.tabs ?? ""}>
        {TABS.map((name) => (
          <Tabs.Tab key={name} value={name}>
            {LABELS[name]}
          </Tabs.Tab>
        ))}
      </Tabs.List>
      <Tabs.Panel value={tab} pt="md">
        <Suspense fallback={<Skeleton height={420} />}>
          {tab === "curves" ? <CurvesTab job={job} live={live} /> : null}
          {tab === "gradients" ? <GradientsTab job={job} /> : null}
          {tab === "logs" ? <LogsTab job={job} live={live} /> : null}
          {tab === "timeline" ? <TimelineTab job={job} live={live} /> : null}
          {tab === "checkpoints" ? <CheckpointsTab job={job} /> : null}
          {tab === "spec" ? <SpecTab job={job} /> : null}
        </Suspense>
      </Tabs.Panel>
    </Tabs>
  );
}

function UnknownJob({ id }: { id: string }) {
  return (
    <Empty title="There is no such job">
      No job has the id <code>{id}</code>.{" "}
      <AnchorLink to="/jobs" size="sm">
        Go to the jobs
      </AnchorLink>
    </Empty>
  );
}
