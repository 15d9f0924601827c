"""Hugging Face `Trainer`: live metrics, a clean pause, and the checkpoint to resume from.

trainer = Trainer(..., callbacks=[TrainhallCallback()])
trainer.train(resume_from_checkpoint=newest_checkpoint("out"))
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainhall.integrations import metrics
from trainhall.training.sdk import api

try:
    from transformers import TrainerCallback
except ImportError as error:
    raise ImportError(
        "trainhall.integrations.transformers needs the package transformers, which cannot be "
        f"imported here: {error}"
    ) from error

_CHECKPOINT = re.compile(r"checkpoint-(\d+)", re.ASCII)
_STATE = "trainer_state.json"


class TrainhallCallback(TrainerCallback):  # type: ignore[misc]
    """Reports what the `Trainer` logs, and lets it save and stop when its job is to pause.

    Outside a job it does nothing.
    """

    def __init__(self) -> None:
        self._is_in_job = False
        self._stops = False

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        # `Trainer` has joined the process group by now.
        steps = state.max_steps if state.max_steps > 0 else None
        self._is_in_job = api.init(total_steps=steps, join=False).job_id is not None
        self._stops = False
        if self._is_in_job:
            api.resume_own(state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if not self._is_in_job:
            return
        api.report(step=state.global_step)
        if not self._stops and api.should_stop():
            self._stops = True
            control.should_save = control.should_training_stop = True

    def on_log(
        self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **_: Any
    ) -> None:
        if self._is_in_job and state.is_world_process_zero:
            metrics.report(logs or {}, state.global_step)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._stops:
            api.leave(saved=f"checkpoint-{state.global_step}")


def newest_checkpoint(output_dir: str | Path) -> str | None:
    """Return the newest whole checkpoint in a folder of a `Trainer`; None: there is none.

    One that a killed process has left half written is passed over.
    """
    found = []
    for path in Path(output_dir).glob("checkpoint-*"):
        name = _CHECKPOINT.fullmatch(path.name)
        if name is not None and _is_whole(path):
            found.append((int(name[1]), str(path)))
    return max(found)[1] if found else None


def _is_whole(checkpoint: Path) -> bool:
    # Written last.
    try:
        return isinstance(json.loads((checkpoint / _STATE).read_bytes()), dict)
    except (OSError, ValueError):
        return False
