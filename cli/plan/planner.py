"""The planner as a process of its own: it needs torch, and a process group that only pretends."""

import subprocess
import sys
from typing import TYPE_CHECKING

from trainhall.cli.base.errors import CliError
from trainhall.cli.base.output import Json

if TYPE_CHECKING:
    from trainhall.training.spec import JobSpec
    from trainhall.training.spec.plan import PlanDevice

_SHOWN_LINES = 20


def planned(
    spec: "JobSpec", workers: int, device: "PlanDevice", *, own_strategy: bool = False
) -> Json:
    """Plan a job whose code is a folder of this host.

    Args:
        own_strategy: only predict the strategy that the spec names.

    Raises:
        CliError: it cannot be planned.
    """
    from trainhall.cli.spec.specs import folder_in_place
    from trainhall.training.spec.plan import (
        PLANNER,
        PlanningFailedError,
        planner_input,
        planner_output,
    )

    folder = folder_in_place(spec, "plan")
    done = subprocess.run(
        [sys.executable, "-m", PLANNER],
        input=planner_input(spec, workers, code=folder, device=device, own_strategy=own_strategy),
        capture_output=True,
        check=False,
    )
    try:
        return planner_output(done.returncode, done.stdout, done.stderr)
    except PlanningFailedError as error:
        raise CliError(str(error), error.lines[-_SHOWN_LINES:] or None) from None
