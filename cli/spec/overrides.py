"""Options that change a job's spec from one attempt to the next."""

from typing import Annotated

import typer

from trainhall.cli.base.errors import UsageError
from trainhall.cli.base.output import Json
from trainhall.cli.spec import specs

Workers = Annotated[
    int | None, typer.Option("--workers", min=1, help="Continue on this number of workers.")
]
Changes = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="FIELD=VALUE",
        help="Replace a value of the job's resources or parallelism. May be repeated.",
    ),
]


def body_of(workers: int | None, overrides: list[str] | None) -> Json:
    """Return the body of a resume or a restore; empty without changes.

    Raises:
        UsageError: something is to change that cannot.
    """
    from trainhall.training.spec import SpecError
    from trainhall.training.spec.parse import changes

    given = specs.parse_overrides(overrides)
    for field in given:
        part, _, key = field.partition(".")
        if part not in ("resources", "parallelism") or not key:
            raise UsageError(
                f"--set {field}: only resources and parallelism can change between attempts, "
                "as in resources.workers=2; for anything else submit a new job"
            )
    try:
        body: Json = changes(given)
    except SpecError as error:
        raise UsageError(f"--set {error}") from None
    if workers is not None:
        body.setdefault("resources", {})["workers"] = workers
    return body
