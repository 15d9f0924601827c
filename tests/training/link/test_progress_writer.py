"""The activity that a process shows to its shim."""

import os
from pathlib import Path

import pytest

from trainhall.training.link.progress import Activity, read
from trainhall.training.link.progress_writer import Progress


def test_failed_save_ends_its_activity(tmp_path: Path) -> None:
    progress = Progress(tmp_path)
    progress.begin(0)
    progress.step(1)
    with pytest.raises(TypeError), progress.during(Activity.SAVING):
        raise TypeError
    page = read(tmp_path, os.getpid())
    progress.close()
    assert page is not None
    assert page.activity is Activity.STEPPING
    assert progress.longest() is None
