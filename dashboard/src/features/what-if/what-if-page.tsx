import { Button, Group, SimpleGrid, Skeleton, Stack, Text, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { type FormEvent, useState } from "react";
import { askWhatIf } from "@/client";
import { PageHeading } from "@/shared/page/heading";
import { useTitle } from "@/shared/title";
import { Problem } from "@/shared/ui/problem";
import { DEFAULT_DAYS, FIELDS, questionOf, type WhatIfSearch, whatIfSearch } from "./question";
import { Result } from "./result";

const route = getRouteApi("/what-if");
const INPUTS: { [field in (typeof FIELDS)[number]]: [label: string, placeholder: string] } = {
  add: ["Add nodes, times their devices", "2x8, 1x64:cpu"],
  remove: ["Remove nodes", "gpu-03, gpu-04"],
  quotas: ["Other quotas, in devices", "project:vision=8, user:maria=4"],
  priorities: ["Other priorities of all jobs", "user:maria=10"],
  days: ["Jobs of so many days", DEFAULT_DAYS],
};

export default function WhatIfPage() {
  useTitle("What if");
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const [typed, setTyped] = useState(search);
  const { question, problems } = questionOf(search);
  const isAsked = FIELDS.some((field) => search[field]) && Object.keys(problems).length === 0;
  const found = useQuery({
    queryKey: ["askWhatIf", question],
    queryFn: ({ signal }) => askWhatIf({ body: question, signal, throwOnError: true }),
    enabled: isAsked,
    retry: false,
    staleTime: Number.POSITIVE_INFINITY,
  });
  const ask = (next: WhatIfSearch) => void navigate({ search: whatIfSearch(next) });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    ask({ days: DEFAULT_DAYS, ...whatIfSearch(typed) });
  };
  return (
    <Stack gap="md">
      <PageHeading title="What if">
        <Text size="sm" c="dimmed">
          The scheduler replays the recorded jobs on the cluster as it is and with your changes.
          Nothing is changed.
        </Text>
      </PageHeading>
      <form onSubmit={submit}>
        <Stack gap="sm">
          <SimpleGrid cols={{ base: 1, sm: 2, lg: 3 }} spacing="sm">
            {FIELDS.map((field) => (
              <TextInput
                key={field}
                label={INPUTS[field][0]}
                placeholder={INPUTS[field][1]}
                value={typed[field] ?? ""}
                error={typed[field] === search[field] ? problems[field] : undefined}
                onChange={({ currentTarget }) =>
                  setTyped({ ...typed, [field]: currentTarget.value })
                }
              />
            ))}
          </SimpleGrid>
          <Group>
            <Button type="submit" loading={found.isFetching}>
              Compare
            </Button>
            {found.isFetching ? (
              <Button variant="default" onClick={() => ask({})}>
                Cancel
              </Button>
            ) : null}
          </Group>
        </Stack>
      </form>
      {found.error ? (
        <Problem
          error={found.error}
          what="Could not compare"
          onRetry={() => void found.refetch()}
        />
      ) : null}
      {found.isFetching ? <Skeleton height={240} /> : null}
      {isAsked && found.data ? <Result found={found.data} /> : null}
    </Stack>
  );
}
