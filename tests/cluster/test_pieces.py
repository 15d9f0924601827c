"""Messages of many pieces, as they go over the wire."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainhall.cluster.pieces import (
    MOST_PIECES,
    Answer,
    Piece,
    decode,
    decode_answers,
    encode,
    encode_answers,
)

pieces = st.binary(max_size=50).flatmap(
    lambda data: st.tuples(
        st.builds(
            Piece,
            job_id=st.text(max_size=9),
            attempt=st.integers(1, 2**31),
            kind=st.sampled_from(["metrics", "stdout", "stderr"]),
            size=st.just(len(data)),
            writer=st.text(max_size=9),
            rank=st.integers(0, 9),
            offset=st.integers(0, 2**60),
        ),
        st.just(data),
    )
)


@given(st.lists(pieces, max_size=8))
def test_what_is_read_is_what_was_written(sent: list[tuple[Piece, bytes]]) -> None:
    assert decode(encode(sent)) == sent


def test_answers_are_read_as_they_were_written() -> None:
    sent = [Answer(position=7), Answer(refusal="there is no job 'x'", status=404)]
    assert decode_answers(encode_answers(sent)) == sent


def piece(size: int) -> Piece:
    return Piece(job_id="j", attempt=1, kind="stdout", size=size)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b"", "EOF"),
        (b"nonsense\n", "expected ident"),
        (b'{"job_id": "j"}\n', "valid array"),
        (b'[{"job_id": "j", "attempt": 1, "kind": "stdout"}]\n', "0.size: Field required"),
        (encode([(piece(4), b"xyz")]), "3 bytes follow where pieces of 4"),
        (encode([(piece(2), b"xyz")]), "3 bytes follow where pieces of 2"),
        (encode([(piece(-1), b""), (piece(4), b"xyz")]), "were announced"),
        (encode([(piece(0), b"")] * (MOST_PIECES + 1)), f"at most {MOST_PIECES}"),
    ],
)
def test_what_is_no_whole_message_is_told_so(message: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        decode(message)
