import { Code, Mark, Text } from "@mantine/core";
import { ApiError, type FieldProblem } from "@/shared/api/problem";
import { SearchField } from "@/shared/ui/search-field";

const HELP =
  "All terms must match: state:failed  user:maria  lr>0.01  duration>2h  metrics.loss<=0.5  " +
  'name:"my job"  -old';

/** The error of a query, if a request was refused for it. */
export function queryProblem(error: unknown): FieldProblem | undefined {
  return error instanceof ApiError && error.status === 422
    ? error.fields.find(({ field }) => field === "query")
    : undefined;
}

interface Props {
  value: string;
  /** The error of the value, or of the previous one until the response arrives. */
  problem: FieldProblem | undefined;
  onSearch: (query: string) => void;
}

export function QueryInput({ value, problem, onSearch }: Props) {
  return (
    <SearchField
      w={300}
      maw="100%"
      placeholder="state:failed lr>0.01 -user:maria"
      aria-label="Query"
      title={HELP}
      value={value}
      spellCheck={false}
      autoCapitalize="off"
      autoComplete="off"
      error={problem ? <Wrong value={value} problem={problem} /> : null}
      // A paragraph cannot hold the block with the query.
      errorProps={{ component: "div" }}
      onSearch={onSearch}
    />
  );
}

function Wrong({ value, problem }: { value: string; problem: FieldProblem }) {
  // The coordinator counts characters, of which some are two units of a string.
  const characters = [...value];
  const position = Math.min(problem.position ?? characters.length, characters.length);
  return (
    <>
      <Text span inherit>
        {problem.message}
      </Text>
      <Code block p={2} fz="xs">
        {characters.slice(0, position).join("")}
        <Mark color="red">{characters[position] ?? " "}</Mark>
        {characters.slice(position + 1).join("")}
      </Code>
    </>
  );
}
