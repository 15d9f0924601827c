"""The functions that scripts call: `import trainhall as th`, then `th.init()` and so on.

Under Trainhall they speak for the rank of the attempt; outside, under `torchrun` or plain Python,
the same script runs as it is and reports to the terminal.
"""

import json
import os
from collections.abc import Callable, Mapping
from functools import cache
from numbers import Integral
from pathlib import Path
from typing import Any, NoReturn

from trainhall.training.event_log import EventLogger
from trainhall.training.sdk import media
from trainhall.training.sdk.reporting import checked_step
from trainhall.training.sdk.session import Context, NoCheckpointsError, Session, open_session
from trainhall.training.spec.parameters import VARIABLE
from trainhall.training.spec.world.data import variable_of

log = EventLogger(__name__)

_session: Session | None = None
_is_set_up = False
"""`init()` was called, by the script or for it."""


def init(
    *,
    total_steps: int | None = None,
    join: bool = True,
    checkpoints: str | Path | None = None,
) -> Context:
    """Find out where this process stands, and join the process group of its ranks.

    Args:
        total_steps: how many steps there will be, for the job's page.
        join: be a member of torch's default process group, if there are several ranks and torch is
            installed: Gloo for CPU tensors, NCCL for those on a GPU. A group that was made already
            is left as it is.
        checkpoints: folder of `checkpoint.save` outside Trainhall, and of `checkpoint.load` in the
            next run; under Trainhall the job's own place is used. Without it nothing is saved
            outside Trainhall.

    Calling it again changes nothing and returns the same.
    """
    global _is_set_up
    session = _opened()
    if not _is_set_up:
        if total_steps is not None:
            if not isinstance(total_steps, Integral) or total_steps < 1:  # numpy's, too
                raise ValueError(f"total_steps must be an integer above 0, not {total_steps!r}")
            total_steps = int(total_steps)
        session.set_up(total_steps, None if checkpoints is None else Path(checkpoints))
        if join:
            session.join()
        _is_set_up = True
    return session.context


def context() -> Context:
    """Return where this process stands, and set nothing up: for what runs beside a script."""
    return _opened().context


def report(
    metrics: Mapping[str, Any] | None = None, /, *, step: int | None = None, **values: Any
) -> None:
    """Report numbers of a step, as in `report(loss=loss, step=step)`. It never waits.

    A value is a number, a 0-d tensor on any device or a numpy scalar. Rank 0's are the job's
    curves, those of another rank are curves of that rank: reduce before, if you want the mean.
    Without `step` the count goes up by one with every call. `report(step=step)` says how far
    training is where there is nothing to measure.

    Raises:
        TypeError, ValueError: a name or a value cannot be a metric's.
    """
    _opened().report({**(metrics or {}), **values}, step)


def log_artifact(path: str | Path, name: str | None = None) -> None:
    """Keep a file, or a folder with all its files, among the job's outputs.

    It is copied to the outputs folder (`TRAINHALL_OUTPUTS`; outside Trainhall `outputs`), under
    its own name or another one, such as `models/best.onnx`. Whatever a script writes there itself
    is kept as well. A full disk is a warning.

    Raises:
        FileNotFoundError, ValueError: there is no such file, or the name cannot be one's.
    """
    _outputs().add(Path(path), name)


def log_image(name: str, value: Any, step: int | None = None) -> None:
    """Show an image of a step beside the curves: it is kept as `media/NAME/STEP.png`.

    Args:
        name: of the series of images, as `train/samples`.
        value: a PIL image, or an array or tensor (see `media.png_of`).
        step: None: the newest that was reported.

    Raises:
        TypeError, ValueError: the value is no image, or the name or step cannot be one's.
    """
    _add_media(name, step, media.png_of(value), "png")


def log_figure(name: str, value: Any, step: int | None = None) -> None:
    """Show a matplotlib figure of a step beside the curves, as `log_image` does. It is not closed.

    Raises:
        TypeError, ValueError: the value is no figure, or the name or step cannot be one's.
    """
    _add_media(name, step, media.png_of_figure(value), "png")


def log_table(name: str, value: Any, step: int | None = None) -> None:
    """Show a table of a step beside the curves: it is kept as `media/NAME/STEP.json`.

    Args:
        name, step: as of `log_image`.
        value: columns by their names, a list of dicts, or a data frame; at most 10,000 rows.

    Raises:
        TypeError, ValueError: the value is no table, or the name or step cannot be one's.
    """
    _add_media(name, step, media.table_json(value), "json")


def log_histogram(name: str, value: Any, step: int | None = None) -> None:
    """Show how numbers of a step are distributed: 64 bins are kept as `media/NAME/STEP.json`.

    Args:
        name, step: as of `log_image`.
        value: numbers in a list, an array or a tensor of any shape.

    Raises:
        ValueError: the value has no numbers, or the name or step cannot be one's.
    """
    _add_media(name, step, media.histogram_json(value), "json")


def _add_media(name: str, step: int | None, content: bytes, suffix: str) -> None:
    at = _opened().reporter.step if step is None else checked_step(step)
    _outputs().add_media(name, at, content, suffix)


@cache
def _outputs() -> media.OutputFolder:
    return media.OutputFolder(_opened().context.rank)


def parameters(**defaults: Any) -> dict[str, Any]:
    """Return the job's `parameters`, over these defaults. Any process of the job may ask.

    Outside Trainhall the variable TRAINHALL_PARAMETERS may hold some, as a JSON object.

    Raises:
        ValueError: the variable holds something else.
    """
    text = os.environ.get(VARIABLE, "{}")
    try:
        given = json.loads(text)
    except ValueError:
        given = None
    if not isinstance(given, dict):
        raise ValueError(f'{VARIABLE} must be a JSON object, such as {{"lr": 0.1}}, not {text!r}')
    return defaults | given


def data(name: str) -> Path:
    """Return the path of one of the job's data sets: a file or a folder, which is read-only.

    Outside Trainhall the variable TRAINHALL_DATA_NAME may hold it, with the name in capitals and
    `_` for `-`.

    Raises:
        LookupError: there is no data set of that name.
    """
    variable = variable_of(name)
    if found := os.environ.get(variable):
        return Path(found)
    raise LookupError(
        f"no data set is called {name!r}: name it under `data` in the job spec, or set {variable} "
        "to its path"
    )


def should_stop() -> bool:
    """Return whether to save and leave at this step: somebody pauses, drains or cancels the job.

    Every rank calls it once a step. All get the same answer at the same step; most calls cost
    nothing, about four a second exchange a few numbers. Once a script asks, a pause waits for it
    instead of sending SIGTERM.
    """
    return _begun().should_stop()


def resume_own(step: int) -> None:
    """Note that the script resumes after a step from a checkpoint of its own; 0: from none.

    Curves of earlier attempts end there. `checkpoint.load()` notes the same.
    """
    _opened().resume_own(checked_step(step))


def leave(saved: str | None = None) -> NoReturn:
    """End this rank after `should_stop()`: wait for the last save and exit as Trainhall expects.

    It raises SystemExit. The job is then paused, and continues from the checkpoint when resumed.

    Args:
        saved: name of a checkpoint that the script has saved otherwise, and loads by itself.

    Raises:
        NotSavedError: the last checkpoint could not be written, on all ranks; the job's reason says
            so.
    """
    session = _opened()
    session.check_mine()
    session.leave(saved)


def on_resize(callback: Callable[[int, int], None]) -> None:
    """Call `callback(before, now)` when the number of ranks is not that of the checkpoint.

    Today a job is resized by a restart: the call comes within `checkpoint.load()`, or at once if
    that was before.
    """
    _opened().on_resize(callback)


class Checkpoint:
    """`trainhall.checkpoint`: verified checkpoints of a script's state."""

    @property
    def step(self) -> int:
        """The step of the checkpoint that was loaded; 0 if none was."""
        return _opened().loaded_step

    def save(self, state: dict[str, Any], *, step: int | None = None) -> None:
        """Save a state in the background: nested dicts, lists and tuples of tensors, None, bool,
        int, float and str. Every rank calls it; rank 0's state is what is saved.

        Training stalls only for the copy to host memory, and for a save that is still under way:
        its end is waited for first. Without `step` it is the newest that was
        reported. Outside Trainhall it needs `init(checkpoints=FOLDER)`.

        Raises:
            TypeError: the state holds something else, or the step is no integer.
            ValueError: the step is below 0.
        """
        try:
            _begun().save(state, step)
        except NoCheckpointsError:
            _warn_of_no_checkpoints()

    def load(self) -> dict[str, Any] | None:
        """Load the newest good state, its tensors on the CPU; None if the job starts from nothing.

        Every rank calls it and gets the same. Every file is verified, and a damaged checkpoint is
        passed over with a note on the job.
        """
        try:
            return _begun().load()
        except NoCheckpointsError:
            return None


checkpoint = Checkpoint()


def _opened() -> Session:
    """Return the session, for what waits for no other rank: one alone may call it, or a data
    worker."""
    global _session
    if _session is None:
        _session = open_session()
    return _session


def _begun() -> Session:
    """Return the session for what all ranks do together, begun with the defaults if need be."""
    session = _opened()
    session.check_mine()
    init()
    return session


@cache
def _warn_of_no_checkpoints() -> None:
    if _opened().context.rank == 0:
        reason = "nothing is saved outside Trainhall; give init(checkpoints=FOLDER) for that"
        log.warning("checkpoint_not_saved", reason=reason)
