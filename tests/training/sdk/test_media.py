"""What a script logs beside its metrics: files of a known form, in the outputs folder."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from trainhall.training.sdk import api, media


@pytest.fixture
def outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The outputs folder of a rank."""
    folder = tmp_path / "outputs"
    monkeypatch.setenv(media.FOLDER_VARIABLE, str(folder))
    monkeypatch.setattr(api, "_outputs", lambda: media.OutputFolder(0))
    return folder


def decoded(content: bytes) -> Any:
    """The pixels of a PNG, read by another program than the one that wrote it."""
    image = pytest.importorskip("PIL.Image")
    from io import BytesIO

    with image.open(BytesIO(content)) as opened:
        return np.asarray(opened)


GRAY = np.array([[0, 255, 7]], np.uint8)
COLORS = np.arange(30, dtype=np.uint8).reshape(2, 5, 3)


@pytest.mark.parametrize(
    ("value", "pixels"),
    [
        (GRAY, GRAY),
        (GRAY[:, :, None], GRAY),
        (COLORS, COLORS),
        (COLORS.transpose(2, 0, 1), COLORS),
        (torch.from_numpy(COLORS.transpose(2, 0, 1).copy()), COLORS),
        (torch.tensor([[0.0, 0.5, 2.0]], dtype=torch.bfloat16), [[0, 128, 255]]),
        ([[False, True]], [[0, 255]]),
        (np.full((1, 2, 4), 9, np.int64), np.full((1, 2, 4), 9)),
    ],
)
def test_png_has_the_pixels_of_an_array(value: Any, pixels: Any) -> None:
    np.testing.assert_array_equal(decoded(media.png_of(value)), pixels)


def test_png_of_pil_images_and_figures() -> None:
    image = pytest.importorskip("PIL.Image")
    np.testing.assert_array_equal(decoded(media.png_of(image.fromarray(COLORS))), COLORS)
    figure_module = pytest.importorskip("matplotlib.figure")
    figure = figure_module.Figure()
    axes = figure.subplots()
    axes.plot([1, 2])
    assert decoded(media.png_of_figure(figure)).shape == decoded(media.png_of_figure(axes)).shape


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (np.zeros((2, 3, 5)), r"not \(2, 3, 5\)"),
        (np.array([[256]]), "from 0 to 255"),
        (np.zeros((0, 3), np.uint8), r"not \(0, 3\)"),
        ("a picture", r"not \(\)"),
    ],
)
def test_png_of_no_image_is_refused(value: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        media.png_of(value)


class Frame:
    """As much of a data frame as is used."""

    columns = ("id", "score")

    def __getitem__(self, name: str) -> Any:
        return np.array([1, 2]) if name == "id" else [0.5, float("nan")]


@pytest.mark.parametrize(
    "value",
    [
        {"id": [1, 2], "score": [0.5, float("nan")]},
        [{"id": np.int64(1), "score": torch.tensor(0.5)}, {"id": 2, "score": float("nan")}],
        Frame(),
    ],
)
def test_table_takes_columns_rows_and_frames(value: Any) -> None:
    assert json.loads(media.table_json(value)) == {
        "kind": "table", "columns": ["id", "score"], "rows": [[1, 0.5], [2, "nan"]],
    }  # fmt: skip


def test_wrong_tables_are_refused() -> None:
    with pytest.raises(ValueError, match="of one length, not a 1, b 2"):
        media.table_json({"a": [1], "b": [1, 2]})
    with pytest.raises(ValueError, match="at most 10,000 rows, not 10,001"):
        media.table_json({"a": range(10_001)})
    with pytest.raises(TypeError, match="not int"):
        media.table_json(3)


def test_histogram_counts_finite_numbers() -> None:
    found = json.loads(media.histogram_json(torch.tensor([[0.0, 1.0], [1.0, float("inf")]]), 2))
    assert found == {
        "kind": "histogram", "counts": [1, 2], "edges": [0.0, 0.5, 1.0], "nonfinite": 1,
    }  # fmt: skip
    with pytest.raises(ValueError, match="at least one number"):
        media.histogram_json([])


def test_media_lie_below_their_name(outputs: Path) -> None:
    api.log_image("train/samples", GRAY, step=20)
    api.log_table("errors", {"id": [1]}, step=20)
    api.log_histogram("weights", [1, 2], step=3)
    media.OutputFolder(3).add_media("weights", 3, b"{}", "json")
    found = sorted(str(p.relative_to(outputs)) for p in outputs.rglob("*") if p.is_file())
    assert found == [
        "media/errors/20.json", "media/train/samples/20.png", "media/weights/3.json",
        "media/weights/rank-3/3.json",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["", "/etc/x", "../x", "a//b", "a/./b", "a\nb", "x" * 201])
def test_names_stay_below_the_folder(outputs: Path, name: str) -> None:
    with pytest.raises(ValueError, match="a name has 1 to 200"):
        api.log_image(name, GRAY, step=1)
    assert not outputs.exists()


def test_artifacts_are_copied_once(outputs: Path, tmp_path: Path) -> None:
    (tmp_path / "made" / "sub").mkdir(parents=True)
    (tmp_path / "made" / "sub" / "weights.bin").write_bytes(b"w")
    api.log_artifact(tmp_path / "made")
    api.log_artifact(tmp_path / "made/sub/weights.bin", "models/best.bin")
    api.log_artifact(outputs / "models/best.bin")
    found = sorted(str(p.relative_to(outputs)) for p in outputs.rglob("*") if p.is_file())
    assert found == ["made/sub/weights.bin", "models/best.bin"]
    with pytest.raises(FileNotFoundError, match="no file"):
        api.log_artifact(tmp_path / "absent")


def test_unwritable_folder_is_a_warning(outputs: Path, caplog: pytest.LogCaptureFixture) -> None:
    outputs.write_text("a file where the folder should be")
    folder = media.OutputFolder(0)
    folder.add_media("a", 1, b"", "png")
    folder.add_media("a", 2, b"", "png")
    assert caplog.text.count("output_not_written") == 1
