import { Skeleton, Stack, Tabs } from "@mantine/core";
import { getRouteApi } from "@tanstack/react-router";
import { useState } from "react";
import { CheckpointsTab } from "@/features/job/checkpoints/checkpoints-tab";
import { GradientsTab } from "@/features/job/gradients/gradients-tab";
import { Header } from "@/features/job/header/header";
import { LogsTab } from "@/features/job/logs/logs-tab";
import { OutputsTab } from "@/features/job/outputs/outputs-tab";
import { ProfilesTab } from "@/features/job/profiles/profiles-tab";
import { TimelineTab } from "@/features/job/timeline/timeline-tab";
import { useJob } from "@/shared/api/jobs";
import { ApiError } from "@/shared/api/problem";
import { isRun, type Job } from "@/shared/api/types";
import type { JobLive } from "@/shared/live/job-live";
import { useJobLive } from "@/shared/live/use-job-live";
import { usePageCommands } from "@/shared/page/commands";
import { lazyComponent } from "@/shared/page/lazy-component";
import { useTitle } from "@/shared/title";
import { NotFound } from "@/shared/ui/empty";
import { Pending } from "@/shared/ui/problem";
import classes from "./job-page.module.css";
import { firstTab, isTab, type Tab, tabsOf } from "./tabs";

// Split off: only the curves need the plotting library, and only the spec the writer of YAML.
const CurvesTab = lazyComponent(() => import("@/features/job/curves/curves-tab"), "the curves");
const SpecTab = lazyComponent(() => import("@/features/job/spec/spec-tab"), "the spec");

const route = getRouteApi("/jobs/$jobId");

const LABELS: Record<Tab, string> = {
  curves: "Curves",
  gradients: "Gradients",
  logs: "Logs",
  timeline: "Timeline",
  checkpoints: "Checkpoints",
  outputs: "Outputs",
  profiles: "Profiles",
  spec: "Spec",
};

export default function JobPage() {
  const { jobId } = route.useParams();
  const job = useJob(jobId);
  const live = useJobLive(jobId);
  useTitle(job.data ? `${job.data.name} · ${job.data.state}` : "Job", job.data?.state);
  if (job.error instanceof ApiError && job.error.status === 404)
    return <NotFound what="job" id={jobId} />;
  if (job.data === undefined) return <Pending query={job} what="the job" height={420} />;
  if (live === null) return <Skeleton height={420} />;
  return (
    <Stack gap="lg">
      <Header job={job.data} live={live} />
      <JobTabs key={job.data.id} job={job.data} live={live} />
    </Stack>
  );
}

/** A run has no spec: its parameters and tags stand there. */
function labelOf(job: Job, tab: Tab): string {
  return tab === "spec" && isRun(job) ? "Parameters" : LABELS[tab];
}

function JobTabs({ job, live }: { job: Job; live: JobLive }) {
  const first = useFirstTab(job);
  const tabs = tabsOf(job);
  const search = route.useSearch();
  const tab = search.tab && tabs.includes(search.tab) ? search.tab : first;
  const navigate = route.useNavigate();
  const show = (next: Tab) =>
    void navigate({
      search: (old) => ({ ...old, tab: next === first ? undefined : next }),
      resetScroll: false,
    });
  usePageCommands(
    tabs.map((name) => ({
      label: `Show ${labelOf(job, name).toLowerCase()}`,
      run: () => show(name),
    })),
  );
  return (
    <Tabs
      value={tab}
      keepMounted={false}
      onChange={(next) => {
        if (isTab(next)) show(next);
      }}
    >
      <Tabs.List aria-label="Job sections" className={classes.tabs ?? ""}>
        {tabs.map((name) => (
          <Tabs.Tab key={name} value={name}>
            {labelOf(job, name)}
          </Tabs.Tab>
        ))}
      </Tabs.List>
      <Tabs.Panel value={tab} pt="md">
        {tab === "curves" ? <CurvesTab job={job} live={live} /> : null}
        {tab === "gradients" ? <GradientsTab job={job} /> : null}
        {tab === "logs" ? <LogsTab job={job} live={live} /> : null}
        {tab === "timeline" ? <TimelineTab job={job} live={live} /> : null}
        {tab === "checkpoints" ? <CheckpointsTab job={job} /> : null}
        {tab === "outputs" ? <OutputsTab key={job.id} job={job} /> : null}
        {tab === "profiles" ? <ProfilesTab job={job} /> : null}
        {tab === "spec" ? <SpecTab job={job} /> : null}
      </Tabs.Panel>
    </Tabs>
  );
}

/** Stays while the page is open, so that a script's first metric does not close the logs. */
function useFirstTab(job: Job): Tab {
  const [first, setFirst] = useState(() => firstTab(job));
  const [waits, setWaits] = useState(job.attempt === 0);
  if (waits && job.attempt > 0) {
    setWaits(false);
    setFirst(firstTab(job));
  }
  return first;
}
