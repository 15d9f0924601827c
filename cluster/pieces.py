"""Small pieces of what ranks write, many in one message: what a host costs while its jobs run
follows the number of its requests, not their size.

A message of the agent is one JSON line that says what follows, and then the bytes of all pieces one
behind the other. The coordinator answers with a JSON array, in their order. Each piece carries its
own position and is taken or refused on its own, so any message may be repeated.
"""

from collections.abc import Sequence

from pydantic import TypeAdapter, ValidationError

from trainhall.cluster.protocol import Message

MOST_PIECES = 1024
MOST_BYTES = 1024 * 1024
"""Of the pieces in one message. Larger ones have a request of their own."""


class Piece(Message):
    """Metric frames of a writer, or bytes of a rank's output from an offset on."""

    job_id: str
    attempt: int
    kind: str
    """`metrics`, `stdout` or `stderr`."""
    size: int
    writer: str = ""
    """Of metrics."""
    generation: int = 1
    """In which the writer began, or the first that wrote this output."""
    rank: int = 0
    """With the offset: of output."""
    offset: int = 0


class Answer(Message):
    """To one piece."""

    position: int = 0
    """The newest sequence that is committed, or the offset that is wanted next."""
    refusal: str | None = None
    """Why the piece was not taken."""
    status: int = 200
    """Of a refusal, as it would be over HTTP."""


_PIECES = TypeAdapter(list[Piece])
_ANSWERS = TypeAdapter(list[Answer])


def encode(pieces: Sequence[tuple[Piece, bytes]]) -> bytes:
    head = _PIECES.dump_json([piece for piece, _ in pieces], exclude_defaults=True)
    return b"".join([head, b"\n", *(data for _, data in pieces)])


def decode(message: bytes) -> list[tuple[Piece, bytes]]:
    """
    Raises:
        ValueError: it is no message of pieces, or not a whole one.
    """
    head, _, rest = message.partition(b"\n")
    try:
        pieces = _PIECES.validate_json(head)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"{where}: {first['msg']}") from None
    if len(pieces) > MOST_PIECES:
        raise ValueError(f"{len(pieces)} pieces: at most {MOST_PIECES} go into one message")
    total = sum(piece.size for piece in pieces)
    if any(piece.size < 0 for piece in pieces) or total != len(rest):
        raise ValueError(f"{len(rest)} bytes follow where pieces of {total} were announced")
    found, at = [], 0
    for piece in pieces:
        found.append((piece, rest[at : at + piece.size]))
        at += piece.size
    return found


def encode_answers(answers: Sequence[Answer]) -> str:
    return _ANSWERS.dump_json(list(answers), exclude_defaults=True).decode()


def decode_answers(text: str | bytes) -> list[Answer]:
    """
    Raises:
        ValueError: it is no such array.
    """
    return _ANSWERS.validate_json(text)
