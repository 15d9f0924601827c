"""Hashes of passwords by argon2id, which take 64 MiB and most of a second each by design."""

import asyncio
import unicodedata
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, TypeVar

from trainhall.cluster.errors import TooManyError
from trainhall.db.database import run_to_end

if TYPE_CHECKING:
    from pwdlib import PasswordHash

T = TypeVar("T")
MIN_PASSWORD = 8
MAX_PASSWORD = 1024
AT_ONCE = 2
"""Hashes that are computed at once."""
MAX_WAITING = 32
"""Hashes that wait for their turn, some seconds in all; others are refused."""
RETRY_SECONDS = 10
OF_NO_USER = (
    "$argon2id$v=19$m=65536,t=3,p=4$D8UpA/9JjYj3btUDrH7ZlA"
    "$/N7olUJ5x7A7XNSHKlgA7pO8ft5lt6uYo9UMuVBjw7I"
)
"""Compared with where there is no user, so that an answer takes as long as for one."""


class Passwords:
    """Hashes and compares off the event loop."""

    def __init__(self) -> None:
        self._turn = asyncio.Semaphore(AT_ONCE)
        self._waiting = 0

    async def hash(self, password: str) -> str:
        """Return the hash of a new password.

        Raises:
            TooManyError: too many wait already.
        """
        return await self._in_turn(lambda: _hasher().hash(_normalized(password)))

    async def matches(self, password: str, hashed: str | None) -> bool:
        """Return whether a password has this hash; without one (None) it takes as long.

        Raises:
            TooManyError: too many wait already.
        """

        def compare() -> bool:
            return _hasher().verify(_normalized(password), hashed or OF_NO_USER)

        return await self._in_turn(compare) and hashed is not None

    async def _in_turn(self, compute: Callable[[], T]) -> T:
        if self._waiting >= MAX_WAITING:
            raise TooManyError(
                f"too many passwords are being checked; try again in {RETRY_SECONDS} s",
                RETRY_SECONDS,
            )
        self._waiting += 1
        try:
            await self._turn.acquire()
        finally:
            self._waiting -= 1
        try:
            # A thread cannot be cancelled: the turn is its until it ends.
            return await run_to_end(asyncio.to_thread(compute))
        finally:
            self._turn.release()


def _normalized(password: str) -> str:
    """Return the same text whatever keyboard it was typed on."""
    return unicodedata.normalize("NFKC", password)


@cache
def _hasher() -> "PasswordHash":
    # Imported when it is first used: most coordinators start without a password.
    from pwdlib import PasswordHash
    from pwdlib.hashers.argon2 import Argon2Hasher

    return PasswordHash((Argon2Hasher(),))
