import { Stack, Tabs } from "@mantine/core";
import { getRouteApi } from "@tanstack/react-router";
import { ApiError } from "@/shared/api/problem";
import type { Experiment } from "@/shared/api/types";
import { SpecView } from "@/shared/spec/spec-view";
import { useTitle } from "@/shared/title";
import { NotFound } from "@/shared/ui/empty";
import { ButtonLink } from "@/shared/ui/links";
import { Pending } from "@/shared/ui/problem";
import { useExperiment } from "../api/experiments";
import { Analysis } from "./analysis";
import { Benchmark } from "./benchmark";
import { Header } from "./header";
import { Scaling } from "./scaling";
import { TrialsTab } from "./trials-tab";

const route = getRouteApi("/experiments/$experimentId");

export default function ExperimentPage() {
  const { experimentId } = route.useParams();
  const { tab = "trials" } = route.useSearch();
  const query = useExperiment(experimentId, { withTrials: tab === "trials" });
  const { data: experiment, error } = query;
  useTitle(
    experiment ? `${experiment.name} · ${experiment.state}` : "Experiment",
    experiment?.state,
  );
  if (error instanceof ApiError && error.status === 404)
    return <NotFound what="experiment" id={experimentId} />;
  if (experiment === undefined) return <Pending query={query} what="the experiment" height={420} />;
  return (
    <Stack gap="lg">
      <Header experiment={experiment} />
      {experiment.kind === "scaling" ? <Scaling experiment={experiment} /> : null}
      {experiment.kind === "sweep" ? null : <Benchmark experiment={experiment} />}
      <Sections experiment={experiment} />
    </Stack>
  );
}

function Sections({ experiment }: { experiment: Experiment }) {
  const { tab = "trials" } = route.useSearch();
  const navigate = route.useNavigate();
  return (
    <Tabs
      value={tab}
      keepMounted={false}
      onChange={(next) =>
        void navigate({
          search: (old) => ({
            ...old,
            tab: next === "spec" || next === "analysis" ? next : undefined,
          }),
          resetScroll: false,
        })
      }
    >
      <Tabs.List aria-label="Experiment sections">
        <Tabs.Tab value="trials">Trials</Tabs.Tab>
        <Tabs.Tab value="analysis">Analysis</Tabs.Tab>
        <Tabs.Tab value="spec">Spec</Tabs.Tab>
      </Tabs.List>
      <Tabs.Panel value="trials" pt="md">
        <TrialsTab experiment={experiment} />
      </Tabs.Panel>
      <Tabs.Panel value="analysis" pt="md">
        <Analysis experiment={experiment} />
      </Tabs.Panel>
      <Tabs.Panel value="spec" pt="md">
        <SpecView of="experiment" spec={experiment.spec}>
          <ButtonLink
            size="xs"
            variant="default"
            to="/experiments/new"
            search={{ from: experiment.id }}
          >
            Create again
          </ButtonLink>
        </SpecView>
      </Tabs.Panel>
    </Tabs>
  );
}
