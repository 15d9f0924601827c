"""The language model: its shape, its text, and what it learns."""

import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from pydantic import ValidationError
from support.tasks.data_sets import in_memory

from trainhall.training.spec.models import SIZES, Shape, shape_of
from trainhall.training.spec.parse import validate_spec
from trainhall.training.spec.tasks import LanguageModelParams
from trainhall.training.tasks import build_task, texts
from trainhall.training.tasks.base import BadDataError, Task
from trainhall.training.tasks.gpt import GPT
from trainhall.training.tasks.texts import Windows, read_texts


def build(**params: Any) -> Task:
    task = {"name": "language_model", "params": params}
    return build_task(validate_spec({"name": "x", "task": task}))


def small() -> GPT:
    torch.manual_seed(0)
    return GPT(Shape(layers=2, heads=2, width=16, context=12)).eval()


def test_gpt2_has_the_parameters_of_gpt2() -> None:
    with torch.device("meta"):
        model = GPT(SIZES["gpt2"])
    assert sum(p.numel() for p in model.parameters()) == 124_439_808


def test_attention_is_causal() -> None:
    model = small()
    tokens = torch.randint(256, (1, 12))
    changed = tokens.clone()
    changed[0, 7:] = 0
    assert torch.allclose(model(tokens)[0, :7], model(changed)[0, :7], atol=1e-6)
    assert not torch.allclose(model(tokens)[0, 7], model(changed)[0, 7], atol=1e-3)


def test_one_matrix_reads_and_writes_tokens() -> None:
    model = small()
    assert model.head.weight is model.embedding.tokens.weight
    # A new model knows nothing: every byte is about as likely.
    loss = torch.nn.functional.cross_entropy(
        model(torch.randint(256, (8, 12))).flatten(0, 1), torch.randint(256, (96,))
    )
    assert loss.item() == pytest.approx(math.log(256), abs=0.1)


def test_residual_projections_start_smaller() -> None:
    model = GPT(Shape(layers=8, heads=4, width=128, context=8))
    block: Any = model.blocks[0]
    assert block.attention.query_key_value.weight.std().item() == pytest.approx(0.02, rel=0.05)
    for layer in (block.attention.output, block.feed_forward.output):
        assert layer.weight.std().item() == pytest.approx(0.02 / 4, rel=0.05)


def test_sizes_may_see_another_context() -> None:
    assert shape_of(LanguageModelParams(size="small", context=32)).context == 32
    assert shape_of(LanguageModelParams(size="gpt2", vocabulary=256)).vocabulary == 256
    assert shape_of(LanguageModelParams()) == SIZES["mini"]


def test_binary_file_is_read_partially(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("to be ")
    (tmp_path / "b.safetensors").touch()
    # Takes no room, and more than any host has as memory.
    os.truncate(tmp_path / "b.safetensors", 1 << 42)
    (tmp_path / "c.txt").write_text("or not")
    assert bytes(read_texts([str(tmp_path)]).tolist()) == b"to be or not"


def test_large_text_is_shared_by_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "_MAPPED", 12)
    file, other = tmp_path / "text.txt", tmp_path / "other.txt"
    file.write_bytes(b"to be or not")
    other.write_bytes(b" to be")
    text = read_texts([str(file)])
    assert bytes(text.tolist()) == b"to be or not"
    assert str(file) in {mapped.path for mapped in psutil.Process().memory_maps()}
    both = read_texts([str(file), str(other)])
    del text
    assert bytes(both.tolist()) == b"to be or not to be"
    assert str(file) not in {mapped.path for mapped in psutil.Process().memory_maps()}


def test_windows_cover_the_text_without_a_gap() -> None:
    windows = Windows(torch.arange(101, dtype=torch.uint8), 10)
    assert len(windows) == 10
    inputs, following = windows.batch(torch.arange(10))
    assert inputs.flatten().tolist() == list(range(100))
    assert following.flatten().tolist() == list(range(1, 101))


@pytest.mark.parametrize("size", [30, 101, 110])
def test_text_offsets_differ_by_epoch(size: int) -> None:
    windows = Windows(torch.arange(size, dtype=torch.uint8), 10, seed=4)
    starts = set()
    for epoch in range(100):
        windows.set_epoch(epoch)
        inputs, following = windows.batch(torch.arange(len(windows)))
        assert inputs.dtype == torch.int64
        assert torch.equal(following, inputs + 1)
        starts.add(int(inputs[0, 0]))
    assert starts == set(range(10))


def test_texts_are_files_folders_and_patterns(tmp_path: Path) -> None:
    for name, text in (("a.txt", "one "), ("b.md", "two "), ("deep/c.txt", "three ")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "d.bin").write_bytes(b"\0\1\2")
    (tmp_path / "e.txt").touch()
    (tmp_path / ".hidden").write_text("no")

    def read(*files: str) -> str:
        return bytes(read_texts([str(tmp_path / f) for f in files]).tolist()).decode()

    assert read("b.md", "a.txt") == "two one "
    assert read("") == "one two three "
    assert read("**/c.*", "[ab].*") == "three one two "
    assert len(read_texts(None)) > 100_000


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("empty.txt", "empty.txt is empty"),
        ("image.png", "image.png holds NUL bytes, so it is not UTF-8 text"),
        ("gone.txt", "no file on this host is called"),
        ("*.rst", "no file on this host fits"),
        ("nothing", "holds no text files"),
        ("short.txt", "too few"),
    ],
)
def test_invalid_text_file_is_named(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "empty.txt").touch()
    (tmp_path / "short.txt").write_text("short")
    (tmp_path / "image.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")
    (tmp_path / "nothing").mkdir()
    (tmp_path / "nothing" / "image.png").write_bytes(b"\0")
    with pytest.raises(BadDataError) as caught:
        build(files=[str(tmp_path / name)])
    assert words in str(caught.value)
    if name != "short.txt":
        assert str(tmp_path / name) in str(caught.value)


def test_language_model_learns_beyond_letter_pairs(tmp_path: Path) -> None:
    # What follows a `b` depends on what followed the one before.
    (tmp_path / "text.txt").write_text("abcabdabeabf" * 800)
    task = build(files=str(tmp_path / "text.txt"), size="tiny", context=16)
    text = read_texts([str(tmp_path / "text.txt")]).numpy()
    torch.manual_seed(2)
    model = task.build_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.005)
    for step in range(160):
        batch = in_memory(task.train_data).batch(torch.arange(16) + 16 * (step % 20))
        optimizer.zero_grad()
        loss, (bits,) = task.loss(model, batch)
        loss.backward()
        optimizer.step()
    assert loss.item() < bigram_entropy(text) / 2
    assert bits.item() == pytest.approx(loss.item() / math.log(2))


def bigram_entropy(text: np.ndarray) -> float:
    """H(next byte | byte) in nats."""
    pairs = np.zeros((256, 256))
    np.add.at(pairs, (text[:-1], text[1:]), 1)
    joint = pairs[pairs > 0] / pairs.sum()
    given = (pairs / np.maximum(pairs.sum(1, keepdims=True), 1))[pairs > 0]
    return float(-(joint * np.log(given)).sum())


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"width": 64}, "needs heads; give both"),
        ({"heads": 4}, "needs width; give both"),
        ({"width": 64, "heads": 5}, "width 64 is not divisible by 5 heads"),
    ],
)
def test_own_model_size_must_be_complete(params: dict[str, int], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        LanguageModelParams.model_validate(params)
    shape = shape_of(LanguageModelParams(layers=3, width=96, heads=6))
    assert (shape.layers, shape.width, shape.heads) == (3, 96, 6)
