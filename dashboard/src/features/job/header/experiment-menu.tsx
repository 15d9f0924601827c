import { Button, Menu } from "@mantine/core";
import type { Job } from "@/shared/api/types";
import { OpenIcon } from "@/shared/ui/icons";
import { MenuLink } from "@/shared/ui/links";

/** Opens the form of an experiment on the job. Only a task reports the speeds that a benchmark
 * compares. */
export function ExperimentMenu({ job: { id, spec } }: { job: Pick<Job, "id" | "spec"> }) {
  return (
    <Menu position="bottom-end" width={200}>
      <Menu.Target>
        <Button size="xs" variant="default" rightSection={<OpenIcon />}>
          Experiment
        </Button>
      </Menu.Target>
      <Menu.Dropdown>
        <MenuLink to="/experiments/new" search={{ job: id, kind: "sweep" }}>
          Sweep this job
        </MenuLink>
        {spec?.task ? (
          <MenuLink to="/experiments/new" search={{ job: id, kind: "benchmark" }}>
            Benchmark this job
          </MenuLink>
        ) : null}
      </Menu.Dropdown>
    </Menu>
  );
}
