import { Anchor, Code, Stack, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { readProvenanceOptions } from "@/client/@tanstack/react-query.gen";
import type { Provenance } from "@/shared/api/types";
import { DiffView } from "@/shared/diff/diff-view";
import { AnchorLink } from "@/shared/ui/links";

/** The repository and the command that a job comes from, as far as they are known. */
export function ProvenanceFacts({ jobId }: { jobId: string }) {
  const found = useQuery(readProvenanceOptions({ path: { job_id: jobId } })).data;
  if (found === undefined) return null;
  const { git, command, reproduces } = found;
  if (git === null && command === null && reproduces === null) {
    return (
      <Text size="sm" c="dimmed" component="section" aria-label="Provenance">
        No repository or command is recorded: the dashboard, experiments and curl send none.
      </Text>
    );
  }
  return (
    <Stack gap={4} component="section" aria-label="Provenance">
      {command ? (
        <Text size="sm">
          Submitted by <Code>{command.map(quoted).join(" ")}</Code>
        </Text>
      ) : null}
      {reproduces ? (
        <Text size="sm">
          Reproduces job{" "}
          <AnchorLink to="/jobs/$jobId" params={{ jobId: reproduces }} inherit>
            {reproduces}
          </AnchorLink>
        </Text>
      ) : null}
      {git ? <Repository git={git} /> : null}
    </Stack>
  );
}

function Repository({ git }: { git: NonNullable<Provenance["git"]> }) {
  const changes = git.dirty ? "uncommitted changes" : "no uncommitted changes";
  return (
    <>
      <Text size="sm">
        Commit <Code title={git.commit}>{git.commit.slice(0, 12)}</Code>
        {git.branch ? ` on ${git.branch}` : ""}
        {git.remote ? (
          <>
            {" of "}
            <Remote url={git.remote} />
          </>
        ) : null}
        {`, ${changes}`}
      </Text>
      {git.diff ? (
        <details>
          <Text component="summary" size="sm" mb="xs" style={{ cursor: "pointer" }}>
            Uncommitted changes{git.diff_truncated ? " (the first 48 KiB)" : ""}
          </Text>
          <DiffView text={git.diff} />
        </details>
      ) : null}
    </>
  );
}

/** Only a web address is a link: the client may have sent anything. */
function Remote({ url }: { url: string }) {
  if (!/^https?:\/\//i.test(url)) return <Code>{url}</Code>;
  return (
    <Anchor href={url} target="_blank" rel="noopener noreferrer">
      {url}
    </Anchor>
  );
}

function quoted(argument: string): string {
  return /^[\w@%+=:,./-]+$/.test(argument) ? argument : `'${argument.replaceAll("'", `'\\''`)}'`;
}
