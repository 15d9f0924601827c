"""Write the documents that follow from the code; `--check` only reports stale ones.

docs/job-spec.md comes from the schema of the job spec, docs/cli.md from the commands and
docs/images/ring.svg from the schedule. Written between markers are the state diagrams in
docs/architecture.md and docs/nodes.md, from the tables of cluster/lifecycle/, and the rules in
docs/failures.md, from cluster/reconcile/rules.py. dashboard/openapi.json is written here, too, as
most of the time goes into importing the product.
"""

import argparse
import inspect
import itertools
import re
import sys
from collections.abc import Iterator
from typing import Any

import openapi
from cli_page import cli_page
from steps import ROOT

from trainhall.cluster.lifecycle import states
from trainhall.cluster.lifecycle.nodes import NODE_EDGES
from trainhall.cluster.lifecycle.states import NodeState
from trainhall.cluster.reconcile.rules import AT_ANY_TIME, ONCE_ALL_ENDED, WHILE_RANKS_RUN
from trainhall.distributed.collectives import draw
from trainhall.distributed.collectives.algorithms.ring import Ring
from trainhall.training.spec import JobSpec
from trainhall.training.spec.tasks import TASK_PARAMS

SPEC_PAGE = ROOT / "docs" / "job-spec.md"
CLI_PAGE = ROOT / "docs" / "cli.md"
RING_PICTURE = ROOT / "docs" / "images" / "ring.svg"
ARCHITECTURE_PAGE = ROOT / "docs" / "architecture.md"
NODES_PAGE = ROOT / "docs" / "nodes.md"
FAILURES_PAGE = ROOT / "docs" / "failures.md"

_SIGNS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}

SPEC_HEAD = """\
<!-- Written by scripts/generate_docs.py from the schema; change the code, then `make generate`. -->
# Job spec

A job spec is YAML or JSON. This one trains a [built-in task](#built-in-tasks) on two workers:

```yaml
name: digits
task:
  name: digits
resources:
  workers: 2
training:
  steps: 500
```

Override values with `--set training.steps=20`. Unknown keys, duplicate keys and YAML aliases are
errors. A spec has at most 1 MiB and 32 levels of nesting.
"""


def main() -> int:
    parser = argparse.ArgumentParser(description="Writes the documents that follow from the code.")
    parser.add_argument("--check", action="store_true", help="change nothing; 1 if out of date")
    options = parser.parse_args()
    pages = {
        SPEC_PAGE: spec_page(),
        CLI_PAGE: cli_page(),
        RING_PICTURE: draw.svg(Ring(4)),
        ARCHITECTURE_PAGE: with_states(ARCHITECTURE_PAGE.read_text(encoding="utf-8")),
        NODES_PAGE: between(
            NODES_PAGE.read_text(encoding="utf-8"),
            "node states",
            diagram(NODE_EDGES, "a", NodeState.PENDING),
        ),
        FAILURES_PAGE: between(
            FAILURES_PAGE.read_text(encoding="utf-8"), "rules of attempts", rules_list()
        ),
    }
    if not options.check or not openapi.is_current():
        pages[openapi.FILE] = openapi.text()
    stale = 0
    for path, text in pages.items():
        old = path.read_text(encoding="utf-8") if path.exists() else ""
        if old == text:
            continue
        stale += 1
        name = path.relative_to(ROOT)
        if options.check:
            print(f"{name} is out of date; run `make generate`", file=sys.stderr)
        else:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {name}", file=sys.stderr)
    return 1 if options.check and stale else 0


def spec_page() -> str:
    """Return the reference of the job spec."""
    schema = JobSpec.model_json_schema()
    parts = [SPEC_HEAD]
    for path, model in sections(schema, schema, ""):
        parts.append(f"\n## {path}\n" if path else "\n## The top level\n")
        if path and (description := model.get("description")):
            parts.append(f"\n{linked(description)}\n")
        parts.append("\n" + fields_list(model, schema, path))
    parts.append("\n# Built-in tasks\n\nParameters go under `task.params`.\n")
    for name, params in sorted(TASK_PARAMS.items()):
        task = params.model_json_schema()
        parts.append(f"\n## {name}\n\n{inspect.getdoc(params)}\n")
        parts.append("\n" + fields_list(task, task))
    lines = "".join(parts).splitlines()
    return "\n".join(line.rstrip() for line in lines) + "\n"


def sections(
    model: dict[str, Any], schema: dict[str, Any], path: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a model and, depth first, the models below it, each with its dotted path."""
    yield path, model
    for name, field in model["properties"].items():
        if (inner := model_in(field, schema)) is not None:
            yield from sections(inner, schema, f"{path}.{name}" if path else name)


def model_in(field: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any] | None:
    """Return the model that a field is, or has a list of; None: it has none."""
    _, inner = resolved(field, schema)
    if inner.get("type") == "array":
        _, inner = resolved(inner["items"], schema)
    return inner if "properties" in inner else None


def linked(text: str) -> str:
    """Replace paths of other pages, which help in an editor, by links."""
    return re.sub(r"docs/([a-z-]+)\.md", r"[\1](\1.md)", text)


def anchor(path: str, name: str) -> str:
    """Return the anchor of the section about a key, as GitHub makes it."""
    return f"{path}{name}".replace(".", "")


def fields_list(model: dict[str, Any], schema: dict[str, Any], path: str = "") -> str:
    items = []
    required = model.get("required", [])
    for name, field in model["properties"].items():
        outer, inner = resolved(field, schema)
        if model_in(field, schema) is not None:
            link = f"#{anchor(path, name)}"
            kind = f"[object]({link})" if "properties" in inner else f"list of [objects]({link})"
            others = [a["type"] for a in outer.get("anyOf", ()) if a.get("type", "null") != "null"]
            kind = " or ".join([*(other for other in others if other != "array"), kind])
        else:
            kind = kind_of(inner, schema)
            default = "required" if name in required else default_of(outer)
            kind += f"; {default}" if default else ""
        meaning = outer.get("description", "")
        if "properties" not in inner:  # which says it in a section of its own
            meaning = meaning or inner.get("description", "")
        meaning = linked(" ".join(meaning.split()))
        items.append(f"- `{name}` ({kind})" + (f": {meaning}" if meaning else ""))
    return "\n".join(items) + "\n"


def resolved(
    field: dict[str, Any], schema: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the field as declared, and its value type without references and null: of several,
    the one with fields of its own."""
    inner = field
    for alternatives in ("anyOf", "allOf"):
        if alternatives in inner:
            kinds = [a for a in inner[alternatives] if a.get("type") != "null"]
            inner = next((a for a in kinds if "$ref" in a), kinds[0])
    if "$ref" in inner:
        inner = schema["$defs"][inner["$ref"].rsplit("/", 1)[1]]
    return field, inner


def kind_of(value: dict[str, Any], schema: dict[str, Any]) -> str:
    """Return a type with its bounds."""
    _, value = resolved(value, schema)
    if "const" in value:
        return f"`{value['const']}`"
    if "enum" in value:
        return ", ".join(f"`{choice}`" for choice in value["enum"])
    kind = str(value.get("type", "any"))
    if kind == "array":
        _, item = resolved(value["items"], schema)
        return f"list of {item['type']}s{bounds_of(item)}"
    return kind + bounds_of(value)


def bounds_of(value: dict[str, Any]) -> str:
    """Return the bounds of a number, without those that only keep it within 64 bits."""
    shown = {key: f"{bound:,.15g}" for key, bound in value.items() if key in _SIGNS}
    if value.get("maximum", 0) >= 10**9:
        del shown["maximum"]
    if value.get("exclusiveMaximum", 0) >= 10**9:
        del shown["exclusiveMaximum"]
    if {"minimum", "maximum"} <= shown.keys():
        to = "–" if value["minimum"] >= 0 else " to "
        return f", {shown['minimum']}{to}{shown['maximum']}"
    return "".join(f", {sign} {shown[key]}" for key, sign in _SIGNS.items() if key in shown)


def default_of(field: dict[str, Any]) -> str:
    default = field.get("default")
    if default is None or default in ({}, []):
        return ""
    return f"default `{str(default).lower() if isinstance(default, bool) else default}`"


def with_states(text: str) -> str:
    """Return the page with both state diagrams between their markers."""
    text = between(text, "job states", diagram(states.JOB_EDGES, "a", states.JobState.QUEUED))
    return between(
        text,
        "attempt states",
        diagram(states.ATTEMPT_EDGES, "A", states.AttemptState.STARTING),
    )


def diagram(edges: dict[Any, str], first: str, start: str) -> str:
    """Draw all edges; those of a letter that end in the same states share a line."""
    ends: dict[tuple[str, str], list[str]] = {}
    for (begin, end), letter in sorted(edges.items()):
        ends.setdefault((letter, begin), []).append(end)
    begins: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (letter, begin), reached in sorted(ends.items()):
        begins.setdefault((letter, tuple(reached)), []).append(begin)
    lines = ["```mermaid", "flowchart LR", f"    new(( )) -->|{first}| {start}"]
    lines += [
        f"    {' & '.join(group)} -->|{letter}| {' & '.join(reached)}"
        for (letter, reached), group in begins.items()
    ]
    return "\n".join([*lines, "```"])


def rules_list() -> str:
    """Return the rules about attempts, in their order."""
    lines: list[str] = []
    numbers = itertools.count(1)
    for when, rules in (
        ("At any time", AT_ANY_TIME),
        ("While ranks run", WHILE_RANKS_RUN),
        ("Once all ranks ended", ONCE_ALL_ENDED),
    ):
        lines += ["", f"{when}:", ""]
        lines += [
            f"{next(numbers)}. **{rule.name}**: {rule.condition} → {rule.decision}"
            for rule in rules
        ]
    return "\n".join([*lines, ""])


def between(text: str, name: str, content: str) -> str:
    begin, end = f"<!-- generated: {name} -->", "<!-- end -->"
    pattern = re.compile(re.escape(begin) + r".*?" + re.escape(end), re.DOTALL)
    replaced, count = pattern.subn(lambda _: f"{begin}\n{content}\n{end}", text)
    if count != 1:
        raise SystemExit(f"the page needs the marker {begin} … {end} exactly once")
    return replaced


if __name__ == "__main__":
    sys.exit(main())
