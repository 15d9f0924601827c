"""Small data sets in the forms in which they are published."""

import gzip
import textwrap
from pathlib import Path

import numpy as np
from PIL import Image

SMALL_TEXT = textwrap.__file__
"""20 KB of the standard library, whose five megabytes are the default and take long to evaluate."""


def write_idx(path: Path, values: np.ndarray, *, packed: bool = False) -> None:
    """Unsigned bytes of any dimensions, as MNIST's files hold them."""
    header = bytes([0, 0, 8, values.ndim]) + b"".join(n.to_bytes(4, "big") for n in values.shape)
    data = header + values.astype(np.uint8).tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    if packed:
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(data))
    else:
        path.write_bytes(data)


def write_mnist(raw: Path, *, train: int = 64, test: int = 16, packed: bool = False) -> None:
    """Images that are as bright as their label is high."""
    rng = np.random.default_rng(0)
    for part, number in (("train", train), ("t10k", test)):
        labels = np.arange(number) % 10
        images = labels[:, None, None] * 20 + rng.integers(0, 40, (number, 28, 28))
        write_idx(raw / f"{part}-images-idx3-ubyte", images, packed=packed)
        write_idx(raw / f"{part}-labels-idx1-ubyte", labels, packed=packed)


def write_cifar10(root: Path, *, train: int = 32, test: int = 8) -> None:
    """The binary version: records of a label and 3×32×32 bytes."""
    folder = root / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    sizes = {f"data_batch_{i + 1}": (train + i) // 5 for i in range(5)} | {"test_batch": test}
    for name, number in sizes.items():
        records = rng.integers(0, 256, (number, 1 + 3 * 32 * 32), dtype=np.uint8)
        records[:, 0] = np.arange(number) % 10
        (folder / f"{name}.bin").write_bytes(records.tobytes())


def write_images(root: Path, classes: tuple[str, ...] = ("cat", "dog"), each: int = 10) -> None:
    """A folder for each class, of JPEG files in a colour of its own."""
    rng = np.random.default_rng(0)
    for number, name in enumerate(classes):
        (root / name).mkdir(parents=True)
        for i in range(each):
            pixels = rng.integers(0, 80, (20, 24 + i, 3)) + np.array([170 * number, 10 * i, 90])
            Image.fromarray(pixels.astype(np.uint8)).save(root / name / f"{i}.jpg")


def write_text(path: Path, size: int = 4000) -> None:
    """Words in an order that a small model can learn something of."""
    words = ["to", "be", "or", "not", "that", "is", "the", "question"]
    rng = np.random.default_rng(0)
    text = " ".join(words[i] for i in rng.integers(0, len(words), size))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode()[:size])
