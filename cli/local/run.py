"""`trainhall run`: train here and now, without a server."""

from pathlib import Path
from typing import Annotated

import typer

from trainhall.cli.base.errors import UsageError
from trainhall.cli.base.extra import check_installed
from trainhall.cli.base.options import Overrides, SpecFile
from trainhall.cli.spec import specs


def run(
    file: SpecFile,
    folder: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            file_okay=False,
            help="Folder for metrics, checkpoints and the result.",
        ),
    ],
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume from the newest checkpoint in DIR.")
    ] = False,
    overrides: Overrides = None,
) -> None:
    """Train a task on this host, without a server.

    Ctrl-C saves a checkpoint and stops; a second Ctrl-C stops at once.

    \b
    Examples:
      trainhall run examples/digits.yaml --output out
      trainhall run examples/digits.yaml --output out --resume
      trainhall run examples/digits.yaml -o /tmp/a --set training.steps=20 --set resources.workers=1

    \b
    Exit codes: 0 completed, 1 failed, 2 wrong input or a folder that is not empty, 130 stopped.
    """  # fmt: skip
    spec = specs.load(file, overrides)
    specs.refuse_prepared(spec, "run")
    if spec.script is not None:
        raise UsageError(
            "`trainhall run` trains tasks only; start a script with torchrun, or submit it"
        )
    specs.folder_in_place(spec, "run")
    _check_folder(folder, resume)
    check_installed("torch", "training")
    from trainhall.cli.local.local import LocalRun
    from trainhall.cli.local.local_plan import choose

    prediction = None
    if spec.is_auto:
        spec, chosen = choose(spec, folder.absolute())
        prediction = chosen.prediction
    run_ = LocalRun(spec, folder.absolute(), resume=resume, prediction=prediction)
    raise typer.Exit(run_.run())


def _check_folder(output: Path, resume: bool) -> None:
    try:
        output.mkdir(parents=True, exist_ok=True)
        empty = not any(output.iterdir())
    except OSError as error:
        raise UsageError(f"cannot write to {output}: {error.strerror}") from None
    if not empty and not resume:
        raise UsageError(f"{output} is not empty; continue its run with --resume, or choose "
                         "another folder")  # fmt: skip
