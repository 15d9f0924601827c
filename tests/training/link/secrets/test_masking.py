"""Masking: no value of a secret is left in what leaves a rank, however it is cut into pieces."""

import itertools
import json
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trainhall.training.link.secrets.masking import MASK, NAMES_VARIABLE, Masker, own_masker
from trainhall.training.link.spool import EventSpool

TOKEN = "hf_canary1234567"
_LETTERS = st.text("ab\n", max_size=12)


def streamed(masker: Masker, *pieces: bytes) -> bytes:
    stream = masker.stream()
    return b"".join([*map(stream.feed, pieces), stream.end()])


@given(
    values=st.lists(st.text("ab", min_size=8, max_size=12), min_size=1, max_size=3),
    parts=st.lists(_LETTERS, max_size=8),
    picks=st.lists(st.integers(0, 2), max_size=8),
    cuts=st.lists(st.integers(0, 200), max_size=8),
)
@example(["aaaaaaaa", "aaaaaaaab"], ["b"], [1], [8])
@example(["aaaabbbb", "bbbbaaaaab"], ["", "aaaaab"], [0], [8])
def test_no_value_is_left_in_a_stream(
    values: list[str], parts: list[str], picks: list[int], cuts: list[int]
) -> None:
    chosen = [values[pick % len(values)] for pick in picks]
    text = "".join(a + b for a, b in zip(parts, [*chosen, *[""] * len(parts)], strict=False))
    data = text.encode()
    marks = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    masker = Masker(values)
    pieces = [data[a:b] for a, b in itertools.pairwise(marks)]
    found = streamed(masker, *pieces).decode()
    assert found == streamed(masker, data).decode(), "the pieces make no difference"
    assert not any(value in found for value in values)
    assert found.replace(MASK, "").count("\n") == text.count("\n")


def test_value_is_masked_byte_by_byte() -> None:
    line = f"token={TOKEN}\n".encode()
    pieces = [line[i : i + 1] for i in range(len(line))]
    assert streamed(Masker([TOKEN]), *pieces) == b"token=***\n"


def test_beginning_of_a_value_waits_and_is_kept() -> None:
    stream = Masker([TOKEN]).stream()
    assert stream.feed(b"see hf_can") == b"see "
    assert stream.feed(b"did\n") == b"hf_candid\n"
    assert stream.feed(b"hf_") == b""
    assert stream.end() == b"hf_"


def test_overlapping_values_are_one_mask() -> None:
    masker = Masker(["aaaabbbb", "bbbbcccc"])
    assert streamed(masker, b"xaaaabbbb", b"ccccx") == b"x***x"


def test_short_values_are_left() -> None:
    assert not Masker(["1234567"])
    assert Masker(["1234567"]).text("1234567") == "1234567"


def test_lines_and_escaped_forms_are_masked() -> None:
    value = 'first "line"\nsecond line\n'
    masker = Masker([value])
    for form in (value, json.dumps(value), repr(value), "| second line"):
        found = streamed(masker, form.encode()).decode()
        assert "first" not in found, form
        assert "second" not in found, form


def test_endless_output_is_not_kept() -> None:
    stream = Masker(["a" * 20]).stream()
    written = sum(len(stream.feed(b"a" * 1000)) for _ in range(50))
    assert written == len(MASK), "one mask for one run of letters"
    assert len(stream._held) < 20


def test_events_are_masked_by_the_ranks_own_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert own_masker() is None
    monkeypatch.setenv(NAMES_VARIABLE, "HF_TOKEN,GONE")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    data = {"message": f"401 for {TOKEN}", "nested": [{TOKEN: 1}], "number": 3}
    EventSpool(tmp_path / "events", 0).append("failure", data)
    line = json.loads((tmp_path / "events").read_text())
    assert line["data"] == {"message": "401 for ***", "nested": [{"***": 1}], "number": 3}
