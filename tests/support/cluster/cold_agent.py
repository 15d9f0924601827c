"""`trainhall agent` for tests of scripts: it imports torch once a task asks for that, not before.

python -m support.cluster.cold_agent agent --coordinator URL ...
"""

import asyncio

from trainhall.cli.main import main
from trainhall.cluster.agent.launch.warm_client import WarmParent


async def _wait(self: WarmParent) -> None:
    await asyncio.Event().wait()


def stay_cold() -> None:
    """Start no warm parent in this process until one is needed."""
    WarmParent.watch = _wait  # type: ignore[method-assign]


if __name__ == "__main__":
    stay_cold()
    main()
