import { ActionIcon, Code, Mark, Popover, Text } from "@mantine/core";
import { ApiError, type FieldProblem } from "@/shared/api/problem";
import { HelpIcon } from "@/shared/ui/icons";
import { SearchField } from "@/shared/ui/search-field";
import classes from "./jobs-page.module.css";

/** Example terms and their meanings. */
const TERMS = [
  ["state:failed", "in this state"],
  ["user:maria", "submitted by this user; user:me is you"],
  ["tag:baseline", "with this tag"],
  ["lr>0.01", "a parameter, or else a metric"],
  ["metrics.loss<=0.5", "the latest value of a metric"],
  ["duration>2h", "ran longer in all"],
  ['name:"my job"', "a part of the name"],
  ["-old", "without “old” in the name"],
] as const;

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
      rightSection={<Help />}
      rightSectionPointerEvents="all"
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

function Help() {
  return (
    <Popover position="bottom-end" withArrow shadow="md">
      <Popover.Target>
        <ActionIcon variant="subtle" color="gray" size="sm" aria-label="Help on queries">
          <HelpIcon />
        </ActionIcon>
      </Popover.Target>
      <Popover.Dropdown>
        <Text size="xs" mb={6}>
          All terms of a query must match:
        </Text>
        <dl className={classes.help}>
          {TERMS.map(([term, meaning]) => (
            <div key={term}>
              <dt>
                <Code>{term}</Code>
              </dt>
              <dd>{meaning}</dd>
            </div>
          ))}
        </dl>
      </Popover.Dropdown>
    </Popover>
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
