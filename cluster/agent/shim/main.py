"""The entry points of a shim, executed or forked from the warm parent.

    python -m trainhall.cluster.agent.shim.main FOLDER
        [--preload] [--attached] [--doorbell PATH] [--confinement JSON]

`--preload` imports torch before the ranks are forked (the warm parent's shims have it already);
`--attached` stops the attempt when standard input closes; each change of `status.json` rings the
doorbell, a named pipe. With a `Confinement` the shim first becomes that user.
"""

import argparse
import os
import sys
from pathlib import Path

from trainhall.cluster.agent.os_support import linux
from trainhall.cluster.agent.shim import folder_ipc, rank_process
from trainhall.cluster.agent.shim.confinement import Confinement
from trainhall.cluster.agent.shim.status_file import StatusFile
from trainhall.cluster.agent.shim.supervisor import Shim, read_launch, read_secrets
from trainhall.training.event_log import EventLogger
from trainhall.training.link.failure import Failure
from trainhall.training.link.folder import AttemptFolder
from trainhall.training.link.secrets.masking import Masker, adopt
from trainhall.training.process.forked import PADDING_VARIABLE
from trainhall.training.process.warm_parent import WarmUpError, warm_up

logger = EventLogger(__name__)


def supervise(
    folder: str, *, fork: bool, attached: bool = False, doorbell: str | None = None
) -> int:
    """Run the attempt of a folder in this process, unless it was run before; the exit code."""
    attempt = AttemptFolder(Path(folder))
    try:
        lock = folder_ipc.claim(attempt)
    except (folder_ipc.AlreadyClaimedError, FileNotFoundError):
        return 0
    bell = Path(doorbell) if doorbell else None
    launch = read_launch(attempt)
    secrets = launch if isinstance(launch, Failure) else read_secrets(attempt, launch)
    if isinstance(launch, Failure):
        StatusFile(attempt, bell).publish_failure(launch)
    elif isinstance(secrets, Failure):
        StatusFile(attempt, bell).publish_failure(secrets)
    else:
        if secrets:
            adopt(Masker(secrets.values()))  # of what it records in place of its ranks
        linux.set_name(f"shim {launch.job_id}")
        Shim(attempt, launch, fork, attached, bell, secrets).run()
    os.close(lock)
    return 0


def main_forked(folder: str, doorbell: str, confinement: str = "") -> int:
    """Run as a child of the warm parent, which has torch imported and prints nowhere."""
    _confine(confinement)
    log = os.open(
        folder_ipc.log_path(AttemptFolder(Path(folder))),
        os.O_WRONLY | os.O_CREAT | os.O_APPEND,
        0o600,
    )
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    return supervise(folder, fork=True, doorbell=doorbell)


def main_bound(folder: str, parent: str) -> int:
    """Run as `main_forked`, but end with all ranks when the warm parent `parent` does."""
    linux.die_with_parent(int(parent))
    return main_forked(folder, os.devnull)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m trainhall.cluster.agent.shim.main")
    parser.add_argument("folder")
    parser.add_argument("--preload", action="store_true")
    parser.add_argument("--attached", action="store_true")
    parser.add_argument("--doorbell")
    parser.add_argument("--confinement", default="")
    options = parser.parse_args()
    _confine(options.confinement)
    # It served its purpose in this process's own memory and is nothing that a rank should see.
    os.environ.pop(PADDING_VARIABLE, None)
    return supervise(
        options.folder,
        fork=options.preload and _preloaded(),
        attached=options.attached,
        doorbell=options.doorbell,
    )


def _confine(confinement: str) -> None:
    if confinement:
        Confinement.model_validate_json(confinement).enter()


def _preloaded() -> bool:
    """Import what ranks need; return whether they can be forked from this process."""
    try:
        warm_up([rank_process.RANK_MODULE])
    except WarmUpError as error:
        # Ranks that import torch themselves do without it, and say what fails.
        logger.warning("ranks_start_cold", error=error)
        return False
    # Forking a process that has Apple's frameworks loaded is not safe.
    return linux.IS_LINUX


if __name__ == "__main__":
    sys.exit(main())
