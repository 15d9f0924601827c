"""The `trainhall` command. Commands import what they need when they run, so that help is quick."""

import io
import os
import sys
from typing import Annotated, Any

import typer

from trainhall.cli import schema
from trainhall.cli.accounts import audit, groups, projects, secrets, users
from trainhall.cli.accounts import commands as accounts
from trainhall.cli.alerts import commands as alerts
from trainhall.cli.base import config
from trainhall.cli.base.complete import CommandWithSigns
from trainhall.cli.base.errors import CliError
from trainhall.cli.bench import command as bench
from trainhall.cli.checkpoints import commands as checkpoints
from trainhall.cli.checkpoints import sample
from trainhall.cli.experiments import commands as experiments
from trainhall.cli.group import Root
from trainhall.cli.imports import commands as imports
from trainhall.cli.jobs import annotations, diff, gradients, logs, reproduce
from trainhall.cli.jobs import commands as jobs
from trainhall.cli.jobs.listing import command as listing
from trainhall.cli.local import run
from trainhall.cli.nodes import commands as nodes
from trainhall.cli.nodes import doctor, ledger, quotas, top, what_if
from trainhall.cli.outputs import commands as outputs
from trainhall.cli.plan import command as plan
from trainhall.cli.reports import commands as reports
from trainhall.cli.server import serve, up
from trainhall.cli.tunnels import commands as tunnels
from trainhall.cli.tunnels import profile
from trainhall.cli.verify import command as verify

app = typer.Typer(
    name="trainhall",
    cls=Root,
    help="Run distributed training jobs on your own machines.",
    epilog="Start with `trainhall up`, then `trainhall submit examples/digits.yaml -f`.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
JOBS, NODES, CHECKPOINTS = "Jobs", "Nodes", "Checkpoints"
SERVER, LOCAL, TOOLS, ACCOUNTS = "Server", "Local", "Tools", "Accounts"
app.command("up", rich_help_panel=SERVER)(up.up)
app.command("server", rich_help_panel=SERVER)(serve.server)
app.command("agent", rich_help_panel=SERVER)(serve.agent)
app.command("submit", rich_help_panel=JOBS)(jobs.submit)
app.command("ls", rich_help_panel=JOBS, cls=CommandWithSigns)(listing.list_jobs)
app.command("list", hidden=True, cls=CommandWithSigns)(listing.list_jobs)
app.command("show", rich_help_panel=JOBS)(jobs.show)
app.command("reproduce", rich_help_panel=JOBS)(reproduce.reproduce)
app.command("diff", rich_help_panel=JOBS)(diff.diff)
app.command("logs", rich_help_panel=JOBS)(logs.logs)
app.command("gradients", rich_help_panel=JOBS)(gradients.gradients)
app.add_typer(outputs.app, name="outputs", rich_help_panel=JOBS)
app.add_typer(imports.app, name="import", rich_help_panel=JOBS)
app.command("pause", rich_help_panel=JOBS)(jobs.pause)
app.command("resume", rich_help_panel=JOBS)(jobs.resume)
app.command("resize", rich_help_panel=JOBS)(jobs.resize)
app.command("cancel", rich_help_panel=JOBS)(jobs.cancel)
app.command("tag", rich_help_panel=JOBS)(annotations.tag)
app.command("note", rich_help_panel=JOBS)(annotations.note)
app.command("archive", rich_help_panel=JOBS)(annotations.archive)
app.command("unarchive", rich_help_panel=JOBS)(annotations.unarchive)
app.command("rm", rich_help_panel=JOBS)(annotations.rm)
app.command("exec", rich_help_panel=JOBS)(tunnels.execute)
app.command("forward", rich_help_panel=JOBS)(tunnels.forward)
app.command("stacks", rich_help_panel=JOBS)(tunnels.stacks)
app.command("profile", rich_help_panel=JOBS)(profile.profile)
app.command("wait", rich_help_panel=JOBS)(jobs.wait)
app.add_typer(experiments.app, name="experiment", rich_help_panel=JOBS)
app.add_typer(reports.app, name="report", rich_help_panel=JOBS)
app.add_typer(nodes.app, name="nodes", rich_help_panel=NODES)
app.command("quotas", rich_help_panel=NODES)(quotas.quotas)
app.command("ledger", rich_help_panel=NODES)(ledger.ledger)
app.command("what-if", rich_help_panel=NODES)(what_if.what_if)
app.add_typer(alerts.app, name="alerts", rich_help_panel=NODES)
app.command("top", rich_help_panel=NODES)(top.top)
app.add_typer(checkpoints.app, name="ckpt", rich_help_panel=CHECKPOINTS)
app.command("sample", rich_help_panel=CHECKPOINTS)(sample.sample)
app.command("open", rich_help_panel=ACCOUNTS)(accounts.open_dashboard)
app.command("login", rich_help_panel=ACCOUNTS)(accounts.login)
app.command("logout", rich_help_panel=ACCOUNTS)(accounts.logout)
app.command("whoami", rich_help_panel=ACCOUNTS)(accounts.whoami)
app.add_typer(accounts.tokens, name="tokens", rich_help_panel=ACCOUNTS)
app.add_typer(users.users, name="users", rich_help_panel=ACCOUNTS)
app.add_typer(groups.groups, name="groups", rich_help_panel=ACCOUNTS)
app.add_typer(projects.projects, name="projects", rich_help_panel=ACCOUNTS)
app.add_typer(secrets.secrets, name="secrets", rich_help_panel=ACCOUNTS)
app.command("audit", rich_help_panel=ACCOUNTS)(audit.audit)
app.command("run", rich_help_panel=LOCAL)(run.run)
app.command("plan", rich_help_panel=LOCAL)(plan.plan)
app.command("verify", rich_help_panel=LOCAL)(verify.verify)
app.command("doctor", rich_help_panel=TOOLS)(doctor.doctor)
app.command("schema", rich_help_panel=TOOLS)(schema.schema)
app.add_typer(bench.app, name="bench", rich_help_panel=TOOLS)


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
        typer.Option("--url", metavar="URL", help="URL of the coordinator, for any command."),
    ] = None,
) -> None:
    context.default_map = config.default_map(context.command)
    if url is not None:
        # Flags come before the environment, here as behind a command.
        os.environ["TRAINHALL_URL"] = url


def main() -> None:
    """Run a command; turn what went wrong into one line and an exit code."""
    try:
        sys.exit(app(standalone_mode=False))
    except CliError as error:
        print(f"trainhall: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except typer.Abort:
        print("trainhall: aborted", file=sys.stderr)
        sys.exit(1)
    except BrokenPipeError:
        # The reader of our output left (`| head`); the interpreter's own flush must not complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        if not isinstance(error, typer.BadParameter.__bases__):
            raise
        sys.exit(_print_usage_error(error))


def _print_usage_error(error: Any) -> int:
    """Print an error of Click as it does, but begin it as ours; return the exit code."""
    text = io.StringIO()
    error.show(text)
    print(text.getvalue().replace("\nError: ", "\ntrainhall: "), end="", file=sys.stderr)
    code: int = error.exit_code
    return code


if __name__ == "__main__":
    main()
