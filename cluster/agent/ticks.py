"""Moments at which all that looks at something from time to time does so together.

To be woken up is most of what a host pays for such a look: caches are cold, and the ranks have just
lost a core. Three that look every half second at one moment cost little more than one.
"""

import asyncio


def until_tick(seconds: float) -> float:
    """Seconds until the next moment that is a multiple of so many, by the loop's clock."""
    return seconds - asyncio.get_running_loop().time() % seconds
