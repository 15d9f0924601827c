"""Planning on a host: the planner is a program, since an agent has no torch."""

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from trainhall.cluster.agent import threads
from trainhall.cluster.agent.launch.code_cache import CodeCache, CodeUnavailableError
from trainhall.cluster.agent.os_support import accounts
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
    code: CodeCache,
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
            try:
                await asyncio.to_thread(scratch.mkdir, parents=True)
                await code.copy(launch.spec.code, folder)
                if owner is not None:
                    await threads.finish(accounts.hand_over, scratch, owner)
            except (CodeUnavailableError, OSError) as error:
                message = f"the job's code is not available on this host: {error}"
                raise PlanningFailedError(message, final=False) from None
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
    env, user = dict(environment), dict[str, Any]()
    if owner is not None:
        env["HOME"] = "/"
        user = {"user": owner.uid, "group": owner.gid, "extra_groups": []}
    process = await asyncio.create_subprocess_exec(
        *(python, "-m", PLANNER),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=env,
        cwd="/",
        start_new_session=True,
        **user,
    )
    running = set() if running is None else running
    running.add(process.pid)
    try:
        stdout, stderr = await process.communicate(request)
    except asyncio.CancelledError:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # and its copies
        await process.wait()
        raise
    finally:
        running.discard(process.pid)
    assert process.returncode is not None
    return process.returncode, stdout, stderr
