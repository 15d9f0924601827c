"""The built-in tasks on images: what they read, what they refuse, and how they vary images."""

import gzip
import importlib.util
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.cluster.attempts import RankServer
from support.storage.data_files import write_cifar10, write_idx, write_images, write_mnist
from support.tasks.data_sets import in_memory

from trainhall.training.data.batch_reader import Reader, Request
from trainhall.training.spec.parse import validate_spec
from trainhall.training.tasks import build_task, vision
from trainhall.training.tasks.base import BadDataError, Task, TaskUnavailableError
from trainhall.training.tasks.images import ImageData

TRAIN_IMAGES, TRAIN_LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"


def build(name: str, root: Path, **params: Any) -> Task:
    task = {"name": name, "params": {"root": str(root), **params}}
    return build_task(validate_spec({"name": "x", "task": task}))


def refusal(name: str, root: Path, **params: Any) -> str:
    with pytest.raises(BadDataError) as caught:
        build(name, root, **params)
    return str(caught.value)


@pytest.mark.parametrize("folder", ["MNIST/raw", "raw", ""])
@pytest.mark.parametrize("packed", [False, True])
def test_mnist_is_read_from_wherever_it_lies(tmp_path: Path, folder: str, packed: bool) -> None:
    write_mnist(tmp_path / folder, train=40, packed=packed)
    before = sorted(tmp_path.rglob("*"))
    task = build("mnist", tmp_path)
    assert task.eval_data is not None
    assert (len(task.train_data), len(task.eval_data)) == (40, 16)
    images, labels = in_memory(task.train_data).batch(torch.tensor([3, 17]))
    assert images.shape == (2, 1, 28, 28)
    assert labels.tolist() == [3, 7]
    # The label makes an image bright; 0.1307 and 0.3081 are the mean and deviation of all of MNIST.
    assert images.mean(dim=(1, 2, 3)).tolist() == pytest.approx(
        [((20 * label + 19.5) / 255 - 0.1307) / 0.3081 for label in (3, 7)], abs=0.05
    )
    assert sorted(tmp_path.rglob("*")) == before


def test_fashion_mnist_has_a_folder_of_its_own(tmp_path: Path) -> None:
    write_mnist(tmp_path / "FashionMNIST" / "raw")
    assert len(build("fashion_mnist", tmp_path).train_data) == 64
    assert "there are no MNIST files below" in refusal("mnist", tmp_path)


@pytest.mark.parametrize("model", ["mlp", "cnn"])
def test_mnist_models_have_ten_classes(tmp_path: Path, model: str) -> None:
    write_mnist(tmp_path / "MNIST" / "raw")
    task = build("mnist", tmp_path, model=model)
    loss, (accuracy,) = task.loss(
        task.build_model(), in_memory(task.train_data).batch(torch.arange(8))
    )
    assert loss.item() == pytest.approx(2.3, abs=0.7)
    assert 0 <= accuracy.item() <= 1


def damage_magic(raw: Path) -> None:
    file = raw / TRAIN_LABELS
    file.write_bytes(b"\x89PNG" + file.read_bytes()[4:])


def truncate(raw: Path) -> None:
    file = raw / TRAIN_IMAGES
    file.write_bytes(file.read_bytes()[:-100])


def cut_header(raw: Path) -> None:
    (raw / TRAIN_IMAGES).write_bytes(bytes([0, 0, 8, 3, 0]))


def claim_much(raw: Path) -> None:
    (raw / TRAIN_IMAGES).write_bytes(bytes([0, 0, 8, 3]) + b"\xff" * 12)


def empty_file(raw: Path) -> None:
    (raw / TRAIN_IMAGES).write_bytes(b"")


def take_away(raw: Path) -> None:
    (raw / TRAIN_LABELS).unlink()


def lose_a_label(raw: Path) -> None:
    write_idx(raw / TRAIN_LABELS, np.zeros(63))


def strange_label(raw: Path) -> None:
    write_idx(raw / TRAIN_LABELS, np.full(64, 11))


def other_size(raw: Path) -> None:
    write_idx(raw / TRAIN_IMAGES, np.zeros((64, 20, 20)))


def no_images(raw: Path) -> None:
    write_idx(raw / TRAIN_IMAGES, np.zeros((0, 28, 28)))


def broken_gzip(raw: Path) -> None:
    whole = gzip.compress((raw / TRAIN_IMAGES).read_bytes())
    (raw / TRAIN_IMAGES).unlink()
    (raw / f"{TRAIN_IMAGES}.gz").write_bytes(whole[: len(whole) // 2])


def endless_gzip(raw: Path) -> None:
    whole = (raw / TRAIN_IMAGES).read_bytes()
    (raw / TRAIN_IMAGES).unlink()
    # Behind what the header promises comes more, and then what can't be unpacked.
    more = gzip.compress(whole + bytes(3 << 20)) + b"no gzip"
    (raw / f"{TRAIN_IMAGES}.gz").write_bytes(more)


def no_gzip(raw: Path) -> None:
    (raw / TRAIN_IMAGES).rename(raw / f"{TRAIN_IMAGES}.gz")


@pytest.mark.parametrize(
    ("damage", "file", "words"),
    [
        (damage_magic, TRAIN_LABELS, "begins with 89 50 4e 47, not 00 00 08 01"),
        (truncate, TRAIN_IMAGES, "is cut short: its header says 64×28×28 = 50,176 bytes"),
        (cut_header, TRAIN_IMAGES, "ends within its header"),
        (claim_much, TRAIN_IMAGES, "claims 4294967295×4294967295×4294967295 values"),
        (empty_file, TRAIN_IMAGES, "begins with nothing"),
        (take_away, "", f"does not have {TRAIN_LABELS} (or {TRAIN_LABELS}.gz)"),
        (lose_a_label, TRAIN_IMAGES, "holds 64 images, but"),
        (strange_label, TRAIN_LABELS, "holds the label 11; labels are 0 to 9"),
        (other_size, TRAIN_IMAGES, "images of 20×20 pixels"),
        (no_images, TRAIN_IMAGES, "holds no images"),
        (broken_gzip, f"{TRAIN_IMAGES}.gz", "is not a complete gzip file"),
        (endless_gzip, f"{TRAIN_IMAGES}.gz", "is too long: its header says 64×28×28"),
        (no_gzip, f"{TRAIN_IMAGES}.gz", "is not a complete gzip file"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_damaged_idx_files_are_named(tmp_path: Path, damage: Any, file: str, words: str) -> None:
    raw = tmp_path / "MNIST" / "raw"
    write_mnist(raw)
    damage(raw)
    message = refusal("mnist", tmp_path)
    assert str(raw / file if file else raw) in message
    assert words in message


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist", "cifar10", "image_folder"])
def test_missing_data_root_is_reported(tmp_path: Path, name: str) -> None:
    assert f"there is no folder {tmp_path / 'gone'} on this host" in refusal(
        name, tmp_path / "gone"
    )
    (tmp_path / "file").touch()
    assert f"{tmp_path / 'file'} is a file" in refusal(name, tmp_path / "file")
    (tmp_path / "empty").mkdir()
    assert f"the folder {tmp_path / 'empty'} is empty" in refusal(name, tmp_path / "empty")


def test_cifar10_is_read_with_its_labels(tmp_path: Path) -> None:
    write_cifar10(tmp_path)
    task = build("cifar10", tmp_path, augment=False)
    assert task.eval_data is not None
    assert (len(task.train_data), len(task.eval_data)) == (32, 8)
    images, labels = in_memory(task.train_data).batch(torch.tensor([1, 9]))
    assert images.shape == (2, 3, 32, 32)
    assert labels.tolist() == [1, 3]
    record = np.fromfile(tmp_path / "cifar-10-batches-bin" / "data_batch_1.bin", dtype=np.uint8)
    pixel = record[3073 + 1 + 1024 + 5]  # image 1, green, the sixth of the first row
    assert images[0, 1, 0, 5].item() == pytest.approx((pixel / 255 - 0.4822) / 0.2435, rel=1e-5)


def test_resnet_keeps_the_resolution_of_small_images(tmp_path: Path) -> None:
    write_cifar10(tmp_path)
    model: Any = build("cifar10", tmp_path).build_model().eval()
    # As published for ResNet-18 with a 3×3 first layer and ten classes.
    assert sum(p.numel() for p in model.parameters()) == 11_173_962
    assert model.layer1(model.maxpool(model.conv1(torch.zeros(1, 3, 32, 32)))).shape[-2:] == (
        32,
        32,
    )


def test_damaged_cifar10_files_are_named(tmp_path: Path) -> None:
    write_cifar10(tmp_path)
    folder = tmp_path / "cifar-10-batches-bin"
    file = folder / "data_batch_2.bin"
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    assert f"{file} has" in refusal("cifar10", tmp_path)
    file.write_bytes(b"\x63" + whole[1:])
    assert f"{file} holds the label 99" in refusal("cifar10", tmp_path)
    (folder / "test_batch.bin").unlink()
    file.write_bytes(whole)
    assert f"{folder} does not have test_batch.bin" in refusal("cifar10", tmp_path)
    for number in (2, 4):
        (folder / f"data_batch_{number}.bin").unlink()
    assert f"{folder} does not have data_batch_2.bin, data_batch_4.bin" in refusal(
        "cifar10", tmp_path
    )
    shutil.rmtree(folder)
    (tmp_path / "cifar-10-batches-py").mkdir()
    message = refusal("cifar10", tmp_path)
    assert f"{tmp_path / 'cifar-10-batches-py'} is not CIFAR-10 as it was published" in message
    (tmp_path / "cifar-10-batches-py").rename(tmp_path / "other")
    assert "holds neither cifar-10-batches-py nor cifar-10-batches-bin" in refusal(
        "cifar10", tmp_path
    )


def test_augmentation_depends_on_sample_and_epoch() -> None:
    images = torch.arange(1, 65, dtype=torch.uint8).view(1, 1, 8, 8).repeat(400, 1, 1, 1)

    def data(seed: int) -> ImageData:
        return ImageData(images, torch.arange(400), mean=[0.0], std=[1 / 255], border=2, seed=seed)

    one = data(3)
    every = one.batch(torch.arange(400))[0].round().to(torch.uint8)
    # Any part, in any order, is read the same.
    order = torch.tensor([7, 3, 399])
    assert torch.equal(one.batch(order)[0].round().to(torch.uint8), every[order])
    padded = torch.nn.functional.pad(images[0, 0], [2] * 4)
    variants = [(y, x, flip) for y in range(5) for x in range(5) for flip in (False, True)]
    cuts = {
        tuple((cut.flip(1) if flip else cut).flatten().tolist()): (y, x, flip)
        for y, x, flip in variants
        for cut in [padded[y : y + 8, x : x + 8]]
    }
    found = [cuts[tuple(image.flatten().tolist())] for image in every[:, 0]]
    assert set(found) == set(variants)
    assert 150 < sum(flip for _, _, flip in found) < 250
    one.set_epoch(1)
    assert not torch.equal(one.batch(torch.arange(400))[0], every.float())
    one.set_epoch(0)
    assert torch.equal(one.batch(torch.arange(400))[0].round().to(torch.uint8), every)
    assert not torch.equal(data(4).batch(torch.arange(400))[0].round().to(torch.uint8), every)


def test_image_folder_classes_are_its_folders(tmp_path: Path) -> None:
    write_images(tmp_path, ("cat", "dog", "yak"))
    task = build("image_folder", tmp_path, image_size=16, model="cnn")
    assert task.eval_data is not None
    assert (len(task.train_data), len(task.eval_data)) == (27, 3)
    reader = Reader(task, task.train_data, 0)
    images, labels = reader.read(Request(0, torch.arange(27)))
    assert images.shape == (27, 3, 16, 16)
    assert set(labels.tolist()) <= {0, 1, 2}
    assert task.build_model()(images).shape == (27, 3)
    again = reader.read(Request(0, torch.tensor([5, 2])))[0]
    assert torch.equal(again, images[[5, 2]])
    assert not torch.equal(reader.read(Request(1, torch.tensor([5])))[0], images[5:6])


def test_image_folder_may_have_a_validation_set(tmp_path: Path) -> None:
    write_images(tmp_path / "train")
    write_images(tmp_path / "val", each=3)
    task = build("image_folder", tmp_path)
    assert task.eval_data is not None
    assert (len(task.train_data), len(task.eval_data)) == (20, 6)
    shutil.rmtree(tmp_path / "val" / "dog")
    assert "do not hold the same classes; dog" in refusal("image_folder", tmp_path)


def test_empty_image_folder_is_reported(tmp_path: Path) -> None:
    write_images(tmp_path)
    (tmp_path / "emu").mkdir()
    assert "emu" in refusal("image_folder", tmp_path)
    (tmp_path / "emu" / "notes.txt").write_text("no image")
    assert f"{tmp_path} must hold a folder of images for each class" in refusal(
        "image_folder", tmp_path
    )
    flat = tmp_path / "flat"
    flat.mkdir()
    (flat / "a.jpg").touch()
    assert "find any class folder" in refusal("image_folder", flat)


def test_invalid_image_file_is_named(tmp_path: Path) -> None:
    write_images(tmp_path, each=5)
    for name, content in (("text.jpg", b"hello"), ("empty.png", b"")):
        (tmp_path / "cat" / name).write_bytes(content)
    whole = (tmp_path / "cat" / "1.jpg").read_bytes()
    (tmp_path / "cat" / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    task = build("image_folder", tmp_path, eval_fraction=0.01)
    reader = Reader(task, task.train_data, 0)
    messages = []
    for index in range(len(task.train_data)):
        try:
            reader.read(Request(0, torch.tensor([index])))
        except BadDataError as error:
            messages.append(str(error))
    for name in ("text.jpg", "empty.png", "cut.jpg"):
        (line,) = [text for text in messages if name in text]
        assert line.startswith(f"{tmp_path / 'cat' / name} is not a readable image")
        assert "repair or remove it" in line


@pytest.mark.parametrize("workers", [0, 1])
def test_job_s_reason_names_the_image(ranks: RankServer, tmp_path: Path, workers: int) -> None:
    images = tmp_path / "images"
    write_images(images, each=4)
    for path in (images / "dog").iterdir():
        path.write_bytes(b"no image")
    params = {"root": str(images), "image_size": 16, "model": "cnn", "eval_fraction": 0.01}
    attempt = ranks.run(
        tmp_path,
        {
            "task": {"name": "image_folder", "params": params},
            "training": {"steps": 9, "global_batch_size": 7, "data_workers": workers},
        },
    )
    assert attempt.codes == [1]
    failure = attempt.event("failure")
    assert failure["type"] == "BadDataError"
    assert failure["message"].startswith(f"{images / 'dog'}")
    assert "image_folder.py" in failure["traceback"]


def test_missing_torchvision_affects_only_its_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_mnist(tmp_path)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    missing = "not installed on this host; install it with"
    with pytest.raises(TaskUnavailableError, match=missing):
        build("image_folder", tmp_path)
    with pytest.raises(TaskUnavailableError, match=missing):
        build("mnist", tmp_path, download=True)
    assert len(build("mnist", tmp_path).train_data) == 64


def test_incompatible_torchvision_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_mnist(tmp_path)

    def fail(name: str) -> Any:
        raise RuntimeError("operator torchvision::nms does not exist")

    monkeypatch.setattr(importlib, "import_module", fail)
    with pytest.raises(TaskUnavailableError, match=r"torchvision [0-9.]+ does not work with torch"):
        vision.torchvision("datasets")


def test_downloads_go_to_the_data_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = vision.torchvision("datasets").MNIST
    monkeypatch.setattr(kind, "download", lambda self: write_mnist(Path(self.raw_folder)))
    assert len(build("mnist", tmp_path / "new", download=True).train_data) == 64

    def fail(self: Any) -> None:
        raise RuntimeError("Error downloading train-images-idx3-ubyte.gz")

    monkeypatch.setattr(kind, "download", fail)
    with pytest.raises(TaskUnavailableError, match="put its files there yourself"):
        build("mnist", tmp_path / "other", download=True)
