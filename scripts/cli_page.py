"""The reference of the `trainhall` command, from the commands themselves."""

import re
from collections.abc import Iterator
from typing import Any

import typer.main

from trainhall.cli.main import app

HEAD = """\
<!-- Written by scripts/generate_docs.py from the commands; change them, then `make generate`. -->
# The command line

Data goes to stdout, everything else to stderr. `-o table|json|yaml|name` says how to print; `name`
prints ids alone, for `xargs`. An id may be shortened to any unique beginning. `NO_COLOR=1`
switches colours off. The coordinator is found by `--url`, `TRAINHALL_URL` or [the configuration
file](operations.md#configuration); [exit codes](operations.md#exit-codes) are the same for all
commands.

## Completion

`trainhall --install-completion` makes the tab key of bash, zsh or fish complete commands and
options, and the ids of jobs, nodes and checkpoints; it takes effect in the next shell. Without a
coordinator nothing is offered. `trainhall --show-completion` prints the script instead, for those
who keep their own: bash and zsh source it, fish reads it from
`~/.config/fish/completions/trainhall.fish`.

## Job specs in an editor

`trainhall schema > job.schema.json` writes a JSON Schema of the [job spec](job-spec.md), with each
task's parameters. Editors with the YAML language server (VS Code with its YAML extension, Neovim,
Helix and others) check and complete a spec that begins with

    # yaml-language-server: $schema=job.schema.json

where the path is relative to the spec. What depends on several values, such as a batch that must
divide by the workers, only `trainhall submit --dry-run` knows.
"""


def cli_page() -> str:
    """The whole page."""
    parts = [HEAD]
    for name, command in _commands(typer.main.get_command(app), "trainhall"):
        parts.append(f"\n## {name}\n\n" + _describe_command(command))
        parts.append(_usage(name, command) + _table(command))
    return "\n".join(line.rstrip() for line in "".join(parts).splitlines()) + "\n"


def _commands(group: Any, path: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if command.hidden:
            continue
        if hasattr(command, "commands"):
            yield from _commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def _describe_command(command: Any) -> str:
    """A command's docstring: its examples as code, the rest as it stands."""
    parts = []
    for block in re.split(r"\n\s*\n", command.help.strip()):
        text = block.replace("\b", "").strip()
        if text.startswith("Examples:"):
            lines = [line.strip() for line in text.splitlines()[1:]]
            parts.append("```sh\n" + "\n".join(lines) + "\n```")
        else:
            parts.append(re.sub(r"\s*\n\s*", " ", text).replace("<", "\\<"))
    return "\n\n".join(parts) + "\n"


def _usage(name: str, command: Any) -> str:
    words = []
    for param in command.params:
        if param.param_type_name == "argument":
            shown = param.metavar or param.name.upper()
            words.append(shown if param.required else f"[{shown}]")
    options = "[OPTIONS] " if _options(command) else ""
    return f"\n    {name} {options}{' '.join(words)}\n"


def _options(command: Any) -> list[Any]:
    return [
        param for param in command.params if param.param_type_name == "option" and not param.hidden
    ]


def _table(command: Any) -> str:
    rows = [
        (f"`{param.metavar or param.name.upper()}`", param.help or "", "")
        for param in command.params
        if param.param_type_name == "argument"
    ]
    for param in _options(command):
        value = f" {param.metavar}" if param.metavar else ""
        names = ", ".join(f"`{name}{value}`" for name in param.opts)
        variable = f" (`{param.envvar}`)" if param.envvar else ""
        rows.append((names, (param.help or "") + variable, _default(param)))
    if not rows:
        return ""
    head = "\n| | meaning | default |\n|---|---|---|\n"
    cells = (tuple(cell.replace("|", "\\|") for cell in row) for row in rows)
    return head + "".join(
        f"| {name} | {help_text} | {default} |\n" for name, help_text, default in cells
    )


def _default(param: Any) -> str:
    if param.required:
        return "required"
    if isinstance(param.show_default, str):
        return param.show_default
    if param.default is None or param.default is False or param.default in ("", [], ()):
        return ""
    return f"`{getattr(param.default, 'value', param.default)}`"
