import { execFileSync } from "node:child_process";
import { describe, expect, it } from "vitest";
import { listing, pythonLiteral, shellWord, submission, withInput } from "./snippets";

const HOSTILE = `it's "$HOME" \`id\` $(id) \\ ! * ~ # ; & | <>\t\né\\n %s`;
const ORIGIN = "http://127.0.0.1:8000";

const shell = (command: string) => execFileSync("sh", ["-c", command], { encoding: "utf8" });

describe("the shell gets every text as it is", () => {
  it("as a word and from a here-document", () => {
    const document = `name: ${HOSTILE}\nEOF\n  indented: 'x'\n`;
    const command = `printf %s ${shellWord(HOSTILE)} && ${withInput("cat", document)}`;
    expect(shell(command)).toBe(HOSTILE + document);
  });

  it("quotes only where it must", () => {
    expect(shellWord(`${ORIGIN}/api/v1`)).toBe(`${ORIGIN}/api/v1`);
    expect(shellWord("")).toBe("''");
    expect(shellWord("lr>0.1")).toBe("'lr>0.1'");
  });
});

it("a list of jobs is repeated with its query", () => {
  const query = { states: ["failed"], search: "", query: "lr>0.1 it's", sort: "-metrics.loss" };
  const { cli, curl, python } = listing(ORIGIN, query);
  expect(cli).toBe(
    `trainhall ls --state failed '--query=lr>0.1 it'\\''s' --sort=-metrics.loss --url ${ORIGIN}`,
  );
  expect(curl).toBe(
    `curl -H @<(trainhall login --print-header ${ORIGIN}) -G ${ORIGIN}/api/v1/training/jobs -d state=failed --data-urlencode 'query=lr>0.1 it'\\''s' --data-urlencode sort=-metrics.loss`,
  );
  expect(python).toContain(
    'for job in client.jobs(state=["failed"], query="lr>0.1 it\'s", sort="-metrics.loss"):',
  );
  expect(listing(ORIGIN, { ...query, states: null, query: "", sort: undefined }).cli).toBe(
    `trainhall ls --url ${ORIGIN}`,
  );
});

it("a submission is repeated with its document, in Python if that is valid", () => {
  const spec = { name: 'a "b"', compile: false, data: null, sizes: [1, 0.5], params: {} };
  const { cli, curl, python } = submission("job", ORIGIN, "name: a\n", spec);
  expect(cli).toBe(`trainhall submit - --url ${ORIGIN} <<'EOF'\nname: a\nEOF\n`);
  expect(curl).toMatch(
    /^curl -H \S+ .*\) -X POST \S+\/training\/jobs .* --data-binary @- <<'EOF'\nname: a\n/,
  );
  expect(python).toBe(`import trainhall as th

with th.Client("${ORIGIN}") as client:
    created = client.submit({
        "name": "a \\"b\\"",
        "compile": False,
        "data": None,
        "sizes": [1, 0.5],
        "params": {},
    })
    print(created["id"])
`);
  expect(submission("experiment", ORIGIN, "- no", ["no"]).python).toBeUndefined();
  expect(pythonLiteral(Number.NaN)).toBe('float("NaN")');
});
