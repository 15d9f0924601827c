"""What a user may do with a job in each state."""

from typing import Any

import pytest

from trainhall.cluster.access.principal import SYSTEM
from trainhall.cluster.jobs.commands import Command, refusal, refused_commands
from trainhall.cluster.lifecycle.states import JobState
from trainhall.db.models import Job

TASK = {"task": {"name": "digits"}}
SCRIPT = {"script": {"path": "/train.py"}}


def allowed(state: str, spec: dict[str, Any] = TASK) -> set[str]:
    refused = refused_commands(Job(state=state, spec=spec), SYSTEM)
    return {command.value for command in Command if command not in refused}


@pytest.mark.parametrize(
    ("state", "commands"),
    [
        ("queued", {"pause", "resize", "cancel", "restore", "capture_gradients"}),
        (
            "running",
            {"pause", "resize", "cancel", "capture_gradients", "exec", "stacks", "profile"},
        ),
        ("pausing", {"resize", "cancel", "capture_gradients", "exec", "stacks"}),
        ("paused", {"resume", "resize", "cancel", "restore", "capture_gradients"}),
        ("cancelling", {"capture_gradients", "exec", "stacks"}),
        ("completed", {"restore", "archive", "delete"}),
    ],
)
def test_each_state_allows_its_commands(state: str, commands: set[str]) -> None:
    assert allowed(state) == commands


@pytest.mark.parametrize("state", list(JobState))
def test_script_records_no_gradients(state: JobState) -> None:
    assert allowed(state.value, SCRIPT) == allowed(state.value) - {"capture_gradients"}


def test_refused_command_has_a_reason() -> None:
    refused = refused_commands(Job(state="completed", spec=TASK), SYSTEM)
    assert refused[Command.PAUSE] == "It is completed, which is final."
    assert refused[Command.RESIZE] == (
        "It is completed; restore one of its checkpoints with other resources instead."
    )
    running = refused_commands(Job(state="running", spec=TASK), SYSTEM)
    assert running[Command.RESTORE] == "It is running; pause or cancel it before a restore."
    assert running[Command.RESUME] == "It is running; only a paused job can be resumed."


def test_repeated_command_is_accepted_but_not_offered() -> None:
    paused = Job(state="paused", spec=TASK)
    assert refusal(paused, Command.PAUSE) is None
    assert refused_commands(paused, SYSTEM)[Command.PAUSE] == "It is already paused."
