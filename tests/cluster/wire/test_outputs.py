"""Contents of outputs that go together, as they go over the wire."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainhall.cluster.wire import outputs
from trainhall.cluster.wire.outputs import Content, decode_contents, encode_contents


def content(data: bytes, size: int | None = None) -> tuple[Content, bytes]:
    sha256 = hashlib.sha256(data).hexdigest()
    return Content(sha256=sha256, size=len(data) if size is None else size), data


@given(st.lists(st.binary(max_size=50).map(content), max_size=8))
def test_contents_round_trip_is_exact(sent: list[tuple[Content, bytes]]) -> None:
    assert decode_contents(encode_contents(sent)) == sent


one = content(b"")[0].model_dump_json()
many = f'{{"contents": [{", ".join([one] * (outputs.MAX_ITEMS + 1))}]}}\n'.encode()


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "EOF"),
        (b'{"contents": [{"sha256": "x", "size": 1}]}\n1', "contents.0.sha256"),
        (encode_contents([content(b"xyz", 4)]), "3 bytes follow where items of 4"),
        (encode_contents([content(b"xyz")])[:-1], "2 bytes follow where items of 3"),
        (many, "at most 1000 items"),
    ],
)
def test_other_bodies_are_refused(body: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        decode_contents(body)


def test_only_so_many_bytes_go_together(monkeypatch: pytest.MonkeyPatch) -> None:
    body = encode_contents([content(b"abc"), content(b"de")])
    monkeypatch.setattr(outputs, "MAX_TOGETHER_BYTES", 4)
    with pytest.raises(ValueError, match="5 bytes: contents of at most 4 go together"):
        decode_contents(body)
