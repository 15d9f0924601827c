"""Writes the documents that follow from the code; `--check` only says whether they are current.

docs/job-spec.md is written whole, from the schema of the job spec, and docs/cli.md from the
commands; docs/images/ring.svg is drawn from the schedule. In docs/architecture.md the drawings of
the states are written between their markers, from the tables of cluster/lifecycle.py, and in
docs/nodes.md the one of cluster/node_lifecycle.py.
"""

import argparse
import inspect
import re
import sys
from collections.abc import Iterator
from typing import Any

from cli_page import cli_page
from steps import ROOT

from trainhall.cluster import lifecycle
from trainhall.cluster.facts import NodeState
from trainhall.cluster.node_lifecycle import NODE_EDGES
from trainhall.distributed.collectives import draw
from trainhall.distributed.collectives.ring import Ring
from trainhall.training.spec import JobSpec
from trainhall.training.spec.tasks import TASK_PARAMS

SPEC_PAGE = ROOT / "docs" / "job-spec.md"
CLI_PAGE = ROOT / "docs" / "cli.md"
RING_PICTURE = ROOT / "docs" / "images" / "ring.svg"
ARCHITECTURE_PAGE = ROOT / "docs" / "architecture.md"
NODES_PAGE = ROOT / "docs" / "nodes.md"

SPEC_HEAD = """\
<!-- Written by scripts/generate_docs.py from the schema; change the code, then `make generate`. -->
# Job spec

A job is described in YAML or JSON. This one trains the built-in `digits` task on two workers:

```yaml
name: digits
task:
  name: digits
resources:
  workers: 2
training:
  steps: 500
```

A value can be replaced when the job is submitted or run: `--set training.steps=20`. Unknown keys
are errors that name the nearest known key. A spec has at most 1 MiB, is nested at most 32 levels
deep, and may use neither YAML aliases nor a key twice.

Give exactly one of `task` and `script`, and at most one of `training.steps` and `training.epochs`
(neither means one epoch). `training.global_batch_size` must divide by the number of workers times
`training.gradient_accumulation`.
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
    }
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
    """The reference of the job spec."""
    schema = JobSpec.model_json_schema()
    parts = [SPEC_HEAD]
    for path, model in sections(schema, schema, ""):
        parts.append(f"\n## {path}\n" if path else "\n## The top level\n")
        if path and (told := model.get("description")):
            parts.append(f"\n{told}\n")
        parts.append("\n" + fields_table(model, schema))
    parts.append("\n# Built-in tasks\n\nTheir parameters go under `task.params`.\n")
    for name, params in sorted(TASK_PARAMS.items()):
        task = params.model_json_schema()
        parts.append(f"\n## {name}\n\n{inspect.getdoc(params)}\n")
        parts.append("\n" + fields_table(task, task))
    lines = "".join(parts).splitlines()
    return "\n".join(line.rstrip() for line in lines) + "\n"


def sections(
    model: dict[str, Any], schema: dict[str, Any], path: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    """A model and, depth first, the models below it, each with its dotted path."""
    yield path, model
    for name, field in model["properties"].items():
        _, inner = resolved(field, schema)
        if "properties" in inner:
            yield from sections(inner, schema, f"{path}.{name}" if path else name)


def fields_table(model: dict[str, Any], schema: dict[str, Any]) -> str:
    rows = ["| key | type | default | meaning |", "|---|---|---|---|"]
    required = model.get("required", [])
    for name, field in model["properties"].items():
        outer, inner = resolved(field, schema)
        if "properties" in inner:
            kind, default = "mapping", ""
        else:
            kind = kind_of(inner, schema)
            default = "required" if name in required else default_of(outer)
        told = outer.get("description", "") or inner.get("description", "")
        told = " ".join(told.split()).replace("|", "\\|")
        rows.append(f"| `{name}` | {kind} | {default} | {told} |")
    return "\n".join(rows) + "\n"


def resolved(
    field: dict[str, Any], schema: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The field as declared, and what its value is: references and `or nothing` taken away."""
    inner = field
    for alternatives in ("anyOf", "allOf"):
        if alternatives in inner:
            inner = next(a for a in inner[alternatives] if a.get("type") != "null")
    if "$ref" in inner:
        inner = schema["$defs"][inner["$ref"].rsplit("/", 1)[1]]
    return field, inner


def kind_of(value: dict[str, Any], schema: dict[str, Any]) -> str:
    """A type and its bounds in words."""
    _, value = resolved(value, schema)
    if "const" in value:
        return f"`{value['const']}`"
    if "enum" in value:
        return ", ".join(f"`{choice}`" for choice in value["enum"])
    names = {
        "integer": "whole number",
        "number": "number",
        "string": "text",
        "boolean": "truth value",
    }
    kind = value.get("type", "anything")
    if kind == "array":
        return f"list of {kind_of(value['items'], schema)}"
    if kind == "object":
        return "mapping"
    return names.get(kind, kind) + bounds_of(value)


def bounds_of(value: dict[str, Any]) -> str:
    bounds = []
    for key, sign in (("minimum", "≥"), ("exclusiveMinimum", ">")):
        if key in value:
            bounds.append(f"{sign} {value[key]:,}")
    for key, sign in (("maximum", "≤"), ("exclusiveMaximum", "<")):
        # A bound that only keeps numbers within 64 bits is nothing to read.
        if key in value and value[key] < 10**9:
            bounds.append(f"{sign} {value[key]:,}")
    return f", {', '.join(bounds)}" if bounds else ""


def default_of(field: dict[str, Any]) -> str:
    default = field.get("default")
    if default is None or default in ({}, []):
        return ""
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def with_states(text: str) -> str:
    """The page with both drawings of states between their markers."""
    text = between(text, "job states", diagram(lifecycle.JOB_EDGES, "a", lifecycle.JobState.QUEUED))
    return between(
        text,
        "attempt states",
        diagram(lifecycle.ATTEMPT_EDGES, "A", lifecycle.AttemptState.STARTING),
    )


def diagram(edges: dict[Any, str], first: str, start: str) -> str:
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {start}: {first}"]
    lines += [
        f"    {begin} --> {end}: {letter}"
        for (begin, end), letter in sorted(edges.items(), key=lambda e: (e[1], e[0]))
    ]
    return "\n".join([*lines, "```"])


def between(text: str, name: str, content: str) -> str:
    begin, end = f"<!-- generated: {name} -->", "<!-- end -->"
    pattern = re.compile(re.escape(begin) + r".*?" + re.escape(end), re.DOTALL)
    replaced, count = pattern.subn(lambda _: f"{begin}\n{content}\n{end}", text)
    if count != 1:
        raise SystemExit(f"the page needs the marker {begin} … {end} exactly once")
    return replaced


if __name__ == "__main__":
    sys.exit(main())
