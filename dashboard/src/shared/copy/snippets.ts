import type { SpecKind } from "../draft";

/** A request to the coordinator as a person repeats it elsewhere. */
export interface Snippets {
  cli: string;
  curl: string;
  /** Left out: the document is not valid. */
  python?: string;
}

/** The submission of a document: a job spec or an experiment. */
export function submission(
  kind: SpecKind,
  origin: string,
  yaml: string,
  document: unknown,
): Snippets {
  const [command, path, method] =
    kind === "job"
      ? ["submit", "/training/jobs", "submit"]
      : ["experiment create", "/experiments", "create_experiment"];
  const url = shellWord(`${origin}/api/v1${path}`);
  return {
    cli: withInput(`trainhall ${command} - --url ${shellWord(origin)}`, yaml),
    curl: withInput(
      `${curl(origin)} -X POST ${url} -H 'Content-Type: application/yaml' --data-binary @-`,
      yaml,
    ),
    ...(isObject(document)
      ? {
          python: client(
            origin,
            `created = client.${method}(${pythonLiteral(document)})`,
            'print(created["id"])',
          ),
        }
      : {}),
  };
}

interface JobsQuery {
  states: readonly string[] | null;
  search: string;
  query: string;
  sort: string | undefined;
}

/** A list of jobs. */
export function listing(origin: string, { states, search, query, sort }: JobsQuery): Snippets {
  const given = Object.entries({ search: search.trim(), query: query.trim(), sort: sort ?? "" });
  const texts = given.filter(([, text]) => text !== "");
  const flags = [
    ...(states ?? []).map((state) => `--state ${state}`),
    // One word, so that a sort that begins with a dash is no option.
    ...texts.map(([name, text]) => shellWord(`--${name}=${text}`)),
  ];
  const parameters = [
    ...(states ?? []).map((state) => `-d state=${state}`),
    ...texts.map(([name, text]) => `--data-urlencode ${shellWord(`${name}=${text}`)}`),
  ];
  const keywords = [
    ...(states === null ? [] : [`state=${pythonLiteral(states)}`]),
    ...texts.map(([name, text]) => `${name}=${pythonLiteral(text)}`),
  ];
  return {
    cli: ["trainhall ls", ...flags, "--url", shellWord(origin)].join(" "),
    curl: [curl(origin), "-G", shellWord(`${origin}/api/v1/training/jobs`), ...parameters].join(
      " ",
    ),
    python: client(
      origin,
      `for job in client.jobs(${keywords.join(", ")}):`,
      '    print(job["id"], job["name"], job["state"])',
    ),
  };
}

/** A text as one word of a POSIX shell. */
export function shellWord(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** A command that reads a text from a here-document, in which the shell expands nothing. */
export function withInput(command: string, text: string): string {
  const lines = text.replace(/\n$/, "").split("\n");
  let end = "EOF";
  while (lines.includes(end)) end += "_";
  return [`${command} <<'${end}'`, ...lines, end, ""].join("\n");
}

/** A value of JSON as Python writes it. */
export function pythonLiteral(value: unknown, indent = ""): string {
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value === "number" && !Number.isFinite(value)) return `float("${value}")`;
  if (typeof value !== "object") return JSON.stringify(value);
  const inner = `${indent}    `;
  if (Array.isArray(value)) {
    return `[${value.map((each) => pythonLiteral(each, indent)).join(", ")}]`;
  }
  const items = Object.entries(value).map(
    ([key, each]) => `${inner}${JSON.stringify(key)}: ${pythonLiteral(each, inner)},\n`,
  );
  return items.length === 0 ? "{}" : `{\n${items.join("")}${indent}}`;
}

/** curl with the reader's credential, which is in no argument that other users of a host see. */
function curl(origin: string): string {
  return `curl -H @<(trainhall login --print-header ${shellWord(origin)})`;
}

function client(origin: string, ...lines: string[]): string {
  const body = lines.flatMap((line) => line.split("\n")).map((line) => `    ${line}`);
  const head = [
    "import trainhall as th",
    "",
    `with th.Client(${JSON.stringify(origin)}) as client:`,
  ];
  return [...head, ...body, ""].join("\n");
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
