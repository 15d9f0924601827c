"""Planning on a host: the planner is a program, since an agent has no torch."""

import asyncio
import shutil
import sys
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path

from trainhall.cluster.agent import threads
from trainhall.cluster.agent.os_support import accounts, programs
from trainhall.cluster.agent.os_support.accounts import Owner
from trainhall.training.link.launch import Launch
from trainhall.training.spec.plan import (
    PLANNER,
    ChosenPlan,
    PlanningFailedError,
    chosen_of,
    planner_input,
    planner_output,
)


async def plan(
    launch: Launch,
    copy_code: Callable[[Path], Awaitable[object]],
    scratch: Path,
    environment: Mapping[str, str],
    owner: Owner | None = None,
    *,
    running: set[int] | None = None,
    python: str = sys.executable,
) -> ChosenPlan:
    """Return the strategy and mesh that suit a job best on the devices of its launch, or the
    prediction of its own.

    If cancelled, the planner is ended first.

    Args:
        copy_code: puts the job's code into a folder that it is given, which does not exist.
        scratch: a folder that does not exist; the job's code is there meanwhile.
        environment: of the planner, which imports that code.
        owner: as whom it does; None: as this process.
        running: holds the planner's pid while it runs.
        python: the interpreter of the job's environment.

    Raises:
        PlanningFailedError: there is none.
    """
    assert launch.planning is not None
    try:
        folder: Path | None = None
        if launch.spec.code is not None:
            folder = scratch / "code"
            await asyncio.to_thread(scratch.mkdir, parents=True)
            await copy_code(folder)
            if owner is not None:
                await threads.finish(accounts.hand_over, scratch, owner)
        request = planner_input(
            launch.spec,
            launch.planning.workers,
            code=str(folder) if folder is not None else None,
            device=launch.planning.device,
            calibration=launch.planning.calibration,
            own_strategy=launch.planning.own_strategy,
        )
        return chosen_of(planner_output(*await _run(request, environment, owner, running, python)))
    except (OSError, ValueError) as error:
        raise PlanningFailedError(f"the planner failed: {error}", final=False) from error
    finally:
        await threads.finish(partial(shutil.rmtree, scratch, ignore_errors=True))


async def _run(
    request: bytes,
    environment: Mapping[str, str],
    owner: Owner | None = None,
    running: set[int] | None = None,
    python: str = sys.executable,
) -> tuple[int, bytes, bytes]:
    env = {**environment, "HOME": "/"} if owner is not None else environment
    return await programs.run(
        (python, "-m", PLANNER),
        environment=env,
        cwd="/",
        running=set() if running is None else running,
        owner=owner,
        stdin=request,
    )
