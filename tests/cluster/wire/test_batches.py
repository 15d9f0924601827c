"""Messages of many pieces, as they go over the wire."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainhall.cluster.wire.batches import (
    MAX_BATCH_ITEMS,
    BatchItem,
    BatchReply,
    decode_batch,
    decode_replies,
    encode_batch,
    encode_replies,
)

pieces = st.binary(max_size=50).flatmap(
    lambda data: st.tuples(
        st.builds(
            BatchItem,
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
def test_batch_round_trip_is_exact(sent: list[tuple[BatchItem, bytes]]) -> None:
    assert decode_batch(encode_batch(sent)) == sent


def test_answers_are_read_as_they_were_written() -> None:
    sent = [BatchReply(position=7), BatchReply(refusal="there is no job 'x'", status=404)]
    assert decode_replies(encode_replies(sent)) == sent


def piece(size: int) -> BatchItem:
    return BatchItem(job_id="j", attempt=1, kind="stdout", size=size)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b"", "EOF"),
        (b"nonsense\n", "^message: Invalid JSON: expected ident"),
        (b'{"job_id": "j"}\n', "valid array"),
        (b'[{"job_id": "j", "attempt": 1, "kind": "stdout"}]\n', "0.size: Field required"),
        (encode_batch([(piece(4), b"xyz")]), "3 bytes follow where items of 4"),
        (encode_batch([(piece(2), b"xyz")]), "3 bytes follow where items of 2"),
        (encode_batch([(piece(-1), b""), (piece(4), b"xyz")]), "were announced"),
        (encode_batch([(piece(0), b"")] * (MAX_BATCH_ITEMS + 1)), f"at most {MAX_BATCH_ITEMS}"),
    ],
)
def test_incomplete_batch_is_refused(message: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        decode_batch(message)
