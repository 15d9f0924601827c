"""Hashes of passwords by argon2id, which take 64 MiB and most of a second each by design."""

import asyncio
import unicodedata
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pwdlib import PasswordHash

MIN_PASSWORD = 8
MAX_PASSWORD = 1024
AT_ONCE = 2
"""Hashes that are computed at once."""
OF_NO_USER = (
    "$argon2id$v=19$m=65536,t=3,p=4$D8UpA/9JjYj3btUDrH7ZlA"
    "$/N7olUJ5x7A7XNSHKlgA7pO8ft5lt6uYo9UMuVBjw7I"
)
"""Compared with where there is no user, so that an answer takes as long as for one."""


class Passwords:
    """Hashes and compares off the event loop."""

    def __init__(self) -> None:
        self._turn = asyncio.Semaphore(AT_ONCE)

    async def hash(self, password: str) -> str:
        """Return the hash of a new password."""
        async with self._turn:
            return await asyncio.to_thread(lambda: _hasher().hash(_normalized(password)))

    async def matches(self, password: str, hashed: str | None) -> bool:
        """Return whether a password has this hash; without one (None) it takes as long."""

        def compare() -> bool:
            return _hasher().verify(_normalized(password), hashed or OF_NO_USER)

        async with self._turn:
            return await asyncio.to_thread(compare) and hashed is not None


def _normalized(password: str) -> str:
    """Return the same text whatever keyboard it was typed on."""
    return unicodedata.normalize("NFKC", password)


@cache
def _hasher() -> "PasswordHash":
    # Imported when it is first used: most coordinators start without a password.
    from pwdlib import PasswordHash
    from pwdlib.hashers.argon2 import Argon2Hasher

    return PasswordHash((Argon2Hasher(),))
