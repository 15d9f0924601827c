"""Waiting for conditions: a test says what it waits for, never for how long things usually take."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(
    what: str, check: Callable[[], T], *, timeout: float = 30.0, every: float = 0.02
) -> T:
    """The first truthy value of `check`; after `timeout` seconds, an error with the last one."""
    deadline = time.monotonic() + timeout
    while True:
        value = check()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout:g} s in vain for {what}; last seen: {value!r}")
        time.sleep(every)
