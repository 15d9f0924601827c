"""`trainhall agent` for tests of scripts: it imports torch once a task asks for that, not before.

python -m support.cold_agent agent --coordinator URL ...
"""

import asyncio
import sys

from trainhall.cli.main import main
from trainhall.cluster.agent.warm_client import WarmParent


async def _wait(parent: WarmParent) -> None:
    await asyncio.Event().wait()


def stay_cold() -> None:
    """Start no warm parent in this process until one is needed."""
    WarmParent.watch = _wait  # type: ignore[method-assign]


if __name__ == "__main__":
    stay_cold()
    sys.exit(main())
