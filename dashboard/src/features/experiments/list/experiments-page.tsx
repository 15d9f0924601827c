import { Code, Stack, Text } from "@mantine/core";
import { getRouteApi } from "@tanstack/react-router";
import { itemsOf } from "@/shared/api/pages";
import { useRights } from "@/shared/api/rights";
import type { Experiment } from "@/shared/api/types";
import { count, metric } from "@/shared/format";
import { Owner } from "@/shared/owners/owner";
import { isNarrow } from "@/shared/owners/scope";
import { ScopeSwitch } from "@/shared/owners/scope-switch";
import { PageHeading } from "@/shared/page/heading";
import { IdText } from "@/shared/page/id-text";
import { LoadMore } from "@/shared/page/load-more";
import { ProgressBar } from "@/shared/table/progress-bar";
import { type Column, Table } from "@/shared/table/table";
import { useTitle } from "@/shared/title";
import { Empty } from "@/shared/ui/empty";
import { PlusIcon } from "@/shared/ui/icons";
import { LinkedText } from "@/shared/ui/linked-text";
import { AnchorLink, ButtonLink } from "@/shared/ui/links";
import { Pending } from "@/shared/ui/problem";
import { Refusable } from "@/shared/ui/refusable";
import { StateBadge } from "@/shared/ui/state-badge";
import { Ago } from "@/shared/ui/time";
import { useExperiments } from "../api/experiments";
import { ownReason, runsOf } from "../runs";
import { kindText, specOf } from "../spec";
import classes from "./experiments-page.module.css";

const route = getRouteApi("/experiments");

export default function ExperimentsPage() {
  useTitle("Experiments");
  const scope = route.useSearch();
  const navigate = route.useNavigate();
  const list = useExperiments(scope);
  const experiments = itemsOf(list.data, ({ id }) => id);
  return (
    <Stack gap="md">
      <PageHeading title="Experiments">
        <NewExperiment />
      </PageHeading>
      <ScopeSwitch scope={scope} onChange={(search) => void navigate({ search })} />
      <Pending query={list} what="the experiments" height={240} />
      {list.data && experiments.length === 0 ? (
        isNarrow(scope) ? (
          <Empty title="No experiment matches">Choose other owners or projects.</Empty>
        ) : (
          <NoExperiments />
        )
      ) : null}
      {experiments.length > 0 ? (
        <Table
          label="Experiments"
          columns={COLUMNS}
          rows={experiments}
          rowKey={({ id }) => id}
          className={classes.table}
          cards
          virtual
        />
      ) : null}
      <LoadMore list={list} />
    </Stack>
  );
}

const COLUMNS: Column<Experiment>[] = [
  {
    id: "name",
    header: "Experiment",
    width: "22%",
    cell: ({ id, name }) => (
      <>
        <AnchorLink
          to="/experiments/$experimentId"
          params={{ experimentId: id }}
          size="sm"
          fw={600}
          display="block"
          truncate
          title={name}
        >
          {name}
        </AnchorLink>
        <IdText id={id} />
      </>
    ),
  },
  { id: "owner", header: "Owner", width: "10%", cell: (experiment) => <Owner of={experiment} /> },
  {
    id: "state",
    header: "State",
    width: "20%",
    cell: (experiment) => (
      <>
        <StateBadge state={experiment.state} />
        {ownReason(experiment) !== "" ? (
          <Text size="xs" c="dimmed" lineClamp={2} mt={3} title={ownReason(experiment)}>
            <LinkedText text={ownReason(experiment)} />
          </Text>
        ) : null}
      </>
    ),
  },
  { id: "kind", header: "Kind", width: "8%", cell: kindText },
  { id: "runs", header: "Runs", width: "18%", cell: (experiment) => <Runs of={experiment} /> },
  { id: "best", header: "Best", width: "13%", cell: (experiment) => <BestValue of={experiment} /> },
  {
    id: "created",
    header: "Created",
    width: "9%",
    right: true,
    cell: ({ created_at }) => <Ago value={created_at} />,
  },
];

function Runs({ of }: { of: Experiment }) {
  const { total, completed, percent, others } = runsOf(of);
  return (
    <div className={classes.runs}>
      <ProgressBar value={percent} label={`Progress of ${of.name}`} />
      <Text size="xs" className="numbers">
        {count(completed)} of {count(total)} completed
        {others === "" ? null : (
          <Text span inherit c="dimmed">
            {" "}
            · {others}
          </Text>
        )}
      </Text>
    </div>
  );
}

function BestValue({ of }: { of: Experiment }) {
  const { best } = of;
  return (
    <>
      {best === null ? null : (
        <Text size="sm" className="numbers">
          {metric(best.value)}
        </Text>
      )}
      <Text size="xs" c="dimmed" className={classes.metric ?? ""}>
        {specOf(of).objective.metric}
        {best === null || best.step === null ? "" : ` at step ${count(best.step)}`}
      </Text>
    </>
  );
}

function NewExperiment() {
  return (
    <Refusable refused={useRights().submit} label="New experiment" icon={<PlusIcon />}>
      <ButtonLink to="/experiments/new" size="xs" leftSection={<PlusIcon />}>
        New experiment
      </ButtonLink>
    </Refusable>
  );
}

function NoExperiments() {
  return (
    <Empty title="No experiments yet">
      <Stack align="center" gap="sm">
        <div>
          An experiment runs a job with different values and finds the best. Create one from the
          command line with{" "}
          <Code>trainhall experiment create examples/experiments/learning_rate.yaml</Code>, or write
          one here; <Code>docs/experiments.md</Code> describes its keys.
        </div>
        <NewExperiment />
      </Stack>
    </Empty>
  );
}
