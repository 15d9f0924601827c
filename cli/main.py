"""The `trainhall` command. Commands import what they need when they run, so that help is quick."""

import os
import sys
from typing import Annotated

import typer

from trainhall.cli import schema
from trainhall.cli.base import config
from trainhall.cli.base.errors import CliError
from trainhall.cli.bench import command as bench
from trainhall.cli.checkpoints import commands as checkpoints
from trainhall.cli.checkpoints import sample
from trainhall.cli.group import Root
from trainhall.cli.jobs import commands as jobs
from trainhall.cli.jobs import gradients, logs
from trainhall.cli.local import run
from trainhall.cli.nodes import commands as nodes
from trainhall.cli.nodes import doctor, quotas, top
from trainhall.cli.plan import command as plan
from trainhall.cli.server import serve, up
from trainhall.cli.verify import command as verify

app = typer.Typer(
    name="trainhall",
    cls=Root,
    help="A self-hosted home for distributed training jobs.",
    epilog="Start with `trainhall up`, then `trainhall submit examples/digits.yaml -f`.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("up")(up.up)
app.command("server")(serve.server)
app.command("agent")(serve.agent)
app.command("run")(run.run)
app.command("plan")(plan.plan)
app.command("verify")(verify.verify)
app.command("sample")(sample.sample)
app.command("submit")(jobs.submit)
app.command("ls")(jobs.list_jobs)
app.command("list", hidden=True)(jobs.list_jobs)
app.command("show")(jobs.show)
app.command("logs")(logs.logs)
app.command("gradients")(gradients.gradients)
app.command("pause")(jobs.pause)
app.command("resume")(jobs.resume)
app.command("resize")(jobs.resize)
app.command("cancel")(jobs.cancel)
app.command("wait")(jobs.wait)
app.command("quotas")(quotas.quotas)
app.command("top")(top.top)
app.command("doctor")(doctor.doctor)
app.command("schema")(schema.schema)
app.add_typer(nodes.app, name="nodes")
app.add_typer(checkpoints.app, name="ckpt")
app.add_typer(bench.app, name="bench")


def _print_version(asked: bool) -> None:
    if asked:
        from trainhall import __version__

        print(f"trainhall {__version__}")
        raise typer.Exit


@app.callback()
def trainhall(
    context: typer.Context,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
    url: Annotated[
        str | None,
        typer.Option("--url", metavar="URL", help="Where the coordinator is, for any command."),
    ] = None,
) -> None:
    context.default_map = config.default_map(context.command)
    if url is not None:
        # Flags come before the environment, here as behind a command.
        os.environ["TRAINHALL_URL"] = url


def main() -> None:
    """The entry point: runs a command and turns what went wrong into one line and an exit code."""
    try:
        app()
    except CliError as error:
        print(f"trainhall: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # The reader of our output left (`| head`); the interpreter's own flush must not complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


if __name__ == "__main__":
    main()
