"""Small items of what ranks write, many in one message: what a host costs while its jobs run
follows the number of its requests, not their size.

A message of the agent is one JSON line that says what follows, and then the bytes of all items one
behind the other. The coordinator replies with a JSON array, in their order. Each item carries its
own position and is taken or refused on its own, so any message may be repeated.
"""

from collections.abc import Sequence

from pydantic import ConfigDict, TypeAdapter, ValidationError

from trainhall.cluster.wire.protocol import Message, first_problem

MAX_BATCH_ITEMS = 1024
MAX_BATCH_BYTES = 1024 * 1024
"""Size limit of the items in one message. Larger ones have a request of their own."""


class BatchItem(Message):
    """Metric frames of a writer, or bytes of a rank's output from an offset on."""

    job_id: str
    attempt: int
    kind: str
    """`metrics`, `stdout` or `stderr`."""
    size: int
    writer: str = ""
    """Writer of metrics."""
    generation: int = 1
    """In which the writer began, or the first that wrote this output."""
    rank: int = 0
    """With the offset: of output."""
    offset: int = 0


class BatchReply(Message):
    """To one item."""

    position: int = 0
    """The newest sequence that is committed, or the offset that is wanted next."""
    refusal: str | None = None
    """Why the item was not taken."""
    status: int = 200
    """Status as over HTTP; not 200 for a refusal."""


_DEFERRED = ConfigDict(defer_build=True)
_ITEMS = TypeAdapter(list[BatchItem], config=_DEFERRED)
_REPLIES = TypeAdapter(list[BatchReply], config=_DEFERRED)


def encode_batch(items: Sequence[tuple[BatchItem, bytes]]) -> bytes:
    head = _ITEMS.dump_json([item for item, _ in items], exclude_defaults=True)
    return b"".join([head, b"\n", *(data for _, data in items)])


def decode_batch(message: bytes) -> list[tuple[BatchItem, bytes]]:
    """
    Raises:
        ValueError: it is no message of items, or not a whole one.
    """
    head, _, rest = message.partition(b"\n")
    try:
        items = _ITEMS.validate_json(head)
    except ValidationError as error:
        raise ValueError(first_problem(error)) from None
    if len(items) > MAX_BATCH_ITEMS:
        raise ValueError(f"{len(items)} items: at most {MAX_BATCH_ITEMS} go into one message")
    return list(zip(items, split_items(rest, [item.size for item in items]), strict=True))


def split_items(data: bytes, sizes: Sequence[int]) -> list[bytes]:
    """Return the items that lie in `data` one behind the other, from their sizes in bytes.

    Raises:
        ValueError: it has another size than all of them.
    """
    total = sum(sizes)
    if any(size < 0 for size in sizes) or total != len(data):
        raise ValueError(f"{len(data)} bytes follow where items of {total} were announced")
    found, at = [], 0
    for size in sizes:
        found.append(data[at : at + size])
        at += size
    return found


def encode_replies(replies: Sequence[BatchReply]) -> str:
    return _REPLIES.dump_json(list(replies), exclude_defaults=True).decode()


def decode_replies(text: str | bytes) -> list[BatchReply]:
    """
    Raises:
        ValueError: it is no such array.
    """
    return _REPLIES.validate_json(text)
