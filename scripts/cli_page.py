"""The reference of the `trainhall` command, from the commands themselves."""

import re
from collections import Counter
from collections.abc import Iterator
from enum import Enum
from typing import Any

import typer.main

from trainhall.cli.main import app

HEAD = """\
<!-- Written by scripts/generate_docs.py from the commands; change them, then `make generate`. -->
# The command line

Data goes to stdout, everything else to stderr. `NO_COLOR=1` switches colours off. Variables such as
`TRAINHALL_URL` and [the configuration file](operations.md#configuration) also set options. [Exit
codes](operations.md#exit-codes) are the same for all commands.

## Completion

`trainhall --install-completion` makes the tab key of bash, zsh or fish complete commands, options
and, from a running coordinator, ids of jobs, nodes and checkpoints. Open a new shell afterwards.
`trainhall --show-completion` prints the script for your own setup: source it in bash or zsh, or
save it as `~/.config/fish/completions/trainhall.fish`.

## Job specs in an editor

`trainhall schema > job.schema.json` writes the JSON Schema of the [job spec](job-spec.md). Editors
with the YAML language server (VS Code with its YAML extension, Neovim, Helix) check and complete a
spec whose first line names the schema, by a path relative to the spec:

    # yaml-language-server: $schema=job.schema.json

Rules over several values, such as batch size and workers, need `trainhall submit --dry-run`.

## Common arguments and options

Commands that ask a coordinator take `--url`, commands that print data `-o`; the sections below
name neither.

"""

SHARED_BY = 3
"""A parameter that so many commands declare alike is described once, in the section above."""
IMPLIED = {"--output", "--url"}


def cli_page() -> str:
    """The whole page."""
    commands = list(_commands(typer.main.get_command(app), "trainhall"))
    lines = [(param, _line(param)) for _, command in commands for param in _params(command)]
    counts = Counter(line for _, line in lines)
    shared = {line: param for param, line in lines if counts[line] >= SHARED_BY}
    parts = [HEAD, *shared]
    for name, command in commands:
        usage = _usage(name, command)
        parts.append(f"\n## {usage}\n\n" + _describe_command(command, usage))
        parts.append(_list(command, shared, commands))
    return "\n".join(line.rstrip() for line in "".join(parts).splitlines()) + "\n"


def _commands(group: Any, path: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if command.hidden:
            continue
        if hasattr(command, "commands"):
            yield from _commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def _describe_command(command: Any, usage: str) -> str:
    """A command's docstring: its examples as code, the rest as it stands.

    The heading already shows a call with nothing but the arguments.
    """
    parts = []
    for block in re.split(r"\n\s*\n", command.help.strip()):
        text = block.replace("\b", "").strip()
        if text.startswith("Examples:"):
            lines = [line.strip() for line in text.splitlines()[1:]]
            plain = len(usage.split())
            lines = [each for each in lines if " -" in each or len(each.split()) != plain]
            if lines:
                parts.append("```sh\n" + "\n".join(lines) + "\n```")
        else:
            parts.append(re.sub(r"\s*\n\s*", " ", text).replace("<", "\\<"))
    return "\n\n".join(parts) + "\n"


def _usage(name: str, command: Any) -> str:
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    words = [_shown(param) if param.required else f"[{_shown(param)}]" for param in arguments]
    return " ".join([name, *words])


def _shown(argument: Any) -> str:
    return str(argument.metavar or argument.name.upper()) + "..." * (argument.nargs == -1)


def _params(command: Any) -> list[Any]:
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    options = [param for param in command.params if param.param_type_name == "option"]
    return arguments + [option for option in options if not option.hidden]


def _list(command: Any, shared: dict[str, Any], commands: list[tuple[str, Any]]) -> str:
    """Describe a command's own parameters; name the options that it shares."""
    lines = [_line(param) for param in _params(command)]
    own_lines = [line for line in lines if line not in shared]
    own = ""
    for name, other in commands:
        theirs = [line for line in map(_line, _params(other)) if line not in shared]
        if SHARED_BY <= len(theirs) < len(own_lines) and set(theirs) <= set(own_lines):
            own += f"- All options of `{name}`\n"
            own_lines = [line for line in own_lines if line not in theirs]
    own += "".join(own_lines)
    common = [
        f"`{min(param.opts, key=len)}`"
        for param in map(shared.get, lines)
        if param is not None and param.param_type_name == "option" and param.opts[0] not in IMPLIED
    ]
    if common:
        own += f"- Common: {', '.join(sorted(common))}\n"
    return f"\n{own}" if own else ""


def _line(param: Any) -> str:
    """Return the list item about an argument or option."""
    if param.param_type_name == "argument":
        return f"- `{_shown(param)}`: {param.help}\n"
    value = f" {param.metavar}" if param.metavar else ""
    if isinstance(param.default, Enum):
        value = " " + "|".join(choice.value for choice in type(param.default))
    names = ", ".join(f"`{name}{value}`" for name in param.opts[:1])
    names += "".join(f", `{name}`" for name in param.opts[1:])
    facts = [fact for fact in (_default(param), param.envvar and f"`{param.envvar}`") if fact]
    return f"- {names}: {param.help or ''}" + (f" ({'; '.join(facts)})" if facts else "") + "\n"


def _default(param: Any) -> str:
    if param.required:
        return "required"
    if isinstance(param.show_default, str):
        return f"default: {param.show_default}"
    if param.default is None or param.default is False or param.default in ("", [], ()):
        return ""
    default = getattr(param.default, "value", param.default)
    return f"default `{default:g}s`" if param.metavar == "DURATION" else f"default `{default}`"
