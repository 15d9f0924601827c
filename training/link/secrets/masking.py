"""Masking of secrets in what a job's ranks write: `***` in place of each value.

Short values are left: masked, they would make holes in words and numbers everywhere.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

MASK = "***"
MIN_LENGTH = 8
"""Least characters of a value, or of a line of one, that is masked."""
NAMES_VARIABLE = "TRAINHALL_SECRETS"
"""Environment variable of ranks that names the variables which are secrets, comma-separated."""


class Masker:
    """Masks values, their lines, and both as JSON and `repr` write them."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        found = {form for value in values for form in _forms(value)}
        # The longest first, so that a value that begins another one does not cut it.
        self._texts = sorted(found, key=len, reverse=True)
        self._needles = [text.encode() for text in self._texts]

    def __bool__(self) -> bool:
        return bool(self._texts)

    def text(self, text: str) -> str:
        """Return a text without the values."""
        for value in self._texts:
            text = text.replace(value, MASK)
        return text

    def json(self, data: Any) -> Any:
        """Return JSON data without the values, in keys as well."""
        match data:
            case str():
                return self.text(data)
            case dict():
                return {self.text(key): self.json(value) for key, value in data.items()}
            case list():
                return [self.json(item) for item in data]
        return data

    def stream(self) -> "MaskedStream":
        """Return a filter of one stream of bytes."""
        return MaskedStream(self._needles)


class MaskedStream:
    """Masks a stream of bytes that comes in pieces: a value may be cut anywhere.

    What may be the beginning of a value is held back until more comes, or the stream ends.
    """

    def __init__(self, needles: list[bytes]) -> None:
        self._needles = needles
        self._held = b""
        self._covered = 0
        """Bytes at the beginning of `_held` for which a mask was written already."""

    def feed(self, data: bytes) -> bytes:
        """Return what can be written now."""
        self._held += data
        return self._take(self._held_from())

    def end(self) -> bytes:
        """Return what is left."""
        return self._take(len(self._held))

    def _take(self, until: int) -> bytes:
        """Return the bytes before `until`, masked; the others stay held."""
        written, at, covered = [], 0, self._covered
        for start, stop in self._spans():
            if start >= until:
                break
            is_new = start > 0 or self._covered == 0
            written += [self._held[at:start], MASK.encode() if is_new else b""]
            at = covered = stop
        if at < until:
            written.append(self._held[at:until])
        self._held = self._held[until:]
        self._covered = max(0, covered - until)
        return b"".join(written)

    def _spans(self) -> Iterator[tuple[int, int]]:
        """Yield the parts of `_held` that values cover, those that overlap as one."""
        found = [(0, self._covered)] if self._covered else []
        for needle in self._needles:
            at = self._held.find(needle)
            while at >= 0:
                found.append((at, at + len(needle)))
                at = self._held.find(needle, at + 1)
        current: tuple[int, int] | None = None
        for start, stop in sorted(found):
            if current is not None and start < current[1]:
                current = (current[0], max(current[1], stop))
                continue
            if current is not None:
                yield current
            current = (start, stop)
        if current is not None:
            yield current

    def _held_from(self) -> int:
        """Return where the longest beginning of a value starts with which `_held` ends."""
        size, longest = len(self._held), 0
        last = self._held[-1:]
        for needle in self._needles:
            if last not in needle:
                continue  # as of nearly all output, which ends with a line break
            for length in range(min(len(needle) - 1, size), longest, -1):
                if needle[length - 1] == last[0] and self._held.endswith(needle[:length]):
                    longest = length
                    break
        return size - longest


def _forms(value: str) -> Iterator[str]:
    """Yield a value as it may be printed; not what is too short to be masked."""
    for part in (value, value.strip(), *value.splitlines()):
        for form in (part, part.strip(), json.dumps(part)[1:-1], repr(part)[1:-1]):
            if len(form) >= MIN_LENGTH and not form.isspace():
                yield form


_adopted: list[Masker] = []


def adopt(masker: Masker) -> None:
    """Mask the values of others as own ones, in this process and its forks."""
    _adopted[:] = [masker]


def own_masker(environment: Mapping[str, str] = os.environ) -> Masker | None:
    """Return what masks the secrets of this process; None: it has none."""
    if _adopted:
        return _adopted[0]
    names = environment.get(NAMES_VARIABLE)
    if not names:
        return None
    return Masker(environment[name] for name in names.split(",") if name in environment)
