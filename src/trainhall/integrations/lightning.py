"""Lightning: live metrics, a clean pause, and resume, without a change to the script.

Lightning finds `callbacks` by its entry point where Trainhall is installed, and adds what it
returns to every `Trainer`. Outside a job that is nothing.
"""

import math
import os
from argparse import Namespace
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

from trainhall.integrations import metrics as integration_metrics
from trainhall.training.link.folder import OUTPUTS_VARIABLE
from trainhall.training.sdk import api

try:
    import torch
    from lightning.pytorch import Callback
    from lightning.pytorch.callbacks import OnExceptionCheckpoint
    from lightning.pytorch.loggers import Logger, MLFlowLogger, TensorBoardLogger
    from lightning.pytorch.utilities import rank_zero_only
except ImportError as error:
    raise ImportError(
        "trainhall.integrations.lightning needs the package lightning, which cannot be imported "
        f"here: {error}"
    ) from error

_FOLDER_VARIABLE = "TRAINHALL_ATTEMPT_FOLDER"
_TRACKING_VARIABLE = "MLFLOW_TRACKING_URI"
_MARK = "trainhall"
"""Key in a checkpoint of the mark of its trainer."""
_PAUSED = "lightning/paused-{}.ckpt"
_trainers = count(1)


class TrainhallLogger(Logger):  # type: ignore[misc]
    """Makes the metrics of a `Trainer` curves of the job."""

    @property
    def name(self) -> str | None:
        return None

    @property
    def version(self) -> str | None:
        return None

    @rank_zero_only  # type: ignore[untyped-decorator]
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        integration_metrics.report(metrics, int(step or 0))

    def log_hyperparams(self, params: dict[str, Any] | Namespace, *_: Any, **__: Any) -> None:
        """Log none: a job has the parameters of its spec."""


class TrainhallCallback(Callback):  # type: ignore[misc]
    """Saves and leaves when the job is to pause, and logs where no other logger makes curves."""

    def __init__(self) -> None:
        self._number = next(_trainers)
        self._job = api.context().job_id
        self._acts = False
        self._saved: str | None = None
        """The checkpoint with which the script is to leave."""

    @property
    def mark(self) -> str:
        """Return the mark of this trainer's checkpoints: the job, and the trainer's number."""
        return f"{self._job}/{self._number}"

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        # A script may have added one beside that of the entry point.
        first = next(each for each in trainer.callbacks if isinstance(each, TrainhallCallback))
        self._acts = self._job is not None and stage == "fit" and first is self

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        # Not before: folders of checkpoints are named by the loggers.
        if self._acts and trainer.loggers and not any(map(_is_read, trainer.loggers)):
            trainer.loggers = [*trainer.loggers, TrainhallLogger()]

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        if self._acts:
            steps = trainer.estimated_stepping_batches
            api.init(total_steps=int(steps) if 0 < steps < math.inf else None, join=False)
            # Loggers count steps from 0.
            api.resume_own(max(trainer.global_step - 1, 0))

    def on_train_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
        if not self._acts or self._saved is not None:
            return
        api.report(step=trainer.global_step)
        if api.should_stop():
            self._saved = _PAUSED.format(self._number)
            trainer.save_checkpoint(_outputs() / self._saved)

    # Lightning counts on checkpoints of the end of a batch, and logs the batch behind it.

    def on_train_batch_start(self, trainer: Any, *_: Any, **__: Any) -> None:
        self._leave_if_saved()

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        self._leave_if_saved()

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self._leave_if_saved()

    def _leave_if_saved(self) -> None:
        if self._saved is not None:
            api.leave(saved=self._saved)

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        if self._acts:
            checkpoint[_MARK] = self.mark


class Resume(OnExceptionCheckpoint):  # type: ignore[misc]
    """Names the checkpoint from which the first `fit()` without `ckpt_path` resumes."""

    def __init__(self, path: Path) -> None:
        super().__init__(path.parent, path.stem)

    def on_exception(self, trainer: Any, *_: Any, **__: Any) -> None:
        """Save nothing."""

    def teardown(self, trainer: Any, *_: Any, **__: Any) -> None:
        """Remove nothing; another `fit()` begins as it would without a checkpoint."""
        self.filename = "used"


def callbacks() -> list[Callback]:
    """Return what every `Trainer` of a job gets."""
    context = api.context()
    if context.job_id is None:
        return []
    own = TrainhallCallback()
    found = newest_checkpoint(own.mark) if context.attempt > 1 else None
    return [own, *([] if found is None else [Resume(found)])]


def newest_checkpoint(mark: str) -> Path | None:
    """Return the newest whole checkpoint with a mark in the working folder or among the outputs;
    None: there is none."""
    paths = {path for folder in _searched() for path in folder.rglob("*.ckpt") if path.is_file()}
    ordered = sorted(paths, key=lambda path: path.stat().st_mtime_ns, reverse=True)
    return next((path for path in ordered if _has_mark(path, mark)), None)


def _searched() -> list[Path]:
    here = Path.cwd()
    if _is_below_attempt(here):
        return [here, _outputs()]
    # A folder of the host's own may be large.
    return [here / "lightning_logs", here / "checkpoints", _outputs()]


def _has_mark(path: Path, mark: str) -> bool:
    try:
        # With pickles, as Lightning loads it.
        content = torch.load(path, map_location="cpu", mmap=True, weights_only=False)
    except Exception:
        return False  # it is damaged, or something else
    return isinstance(content, dict) and content.get(_MARK) == mark


def _is_read(logger: Any) -> bool:
    """Return whether what a logger writes becomes curves of the job already."""
    if isinstance(logger, TensorBoardLogger):
        return _is_below_attempt(Path(logger.log_dir))
    if isinstance(logger, MLFlowLogger):
        return getattr(logger, "_tracking_uri", None) == os.environ.get(_TRACKING_VARIABLE)
    return isinstance(logger, TrainhallLogger)


def _is_below_attempt(path: Path) -> bool:
    folder = os.environ.get(_FOLDER_VARIABLE, "")
    return bool(folder) and path.resolve().is_relative_to(Path(folder).resolve())


def _outputs() -> Path:
    return Path(os.environ[OUTPUTS_VARIABLE])
