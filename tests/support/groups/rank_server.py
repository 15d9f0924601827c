"""A process, forked with torch imported, that forks groups of ranks, as a warm shim does.

It reads one JSON object a line, `{"function": "module:name", "world_size": …, "folder": …}`, runs
`function(folder)` in that many ranks with a rendezvous store beside them, and answers
`{"codes": [exit code of each rank]}`. A rank's output goes to `<folder>/ranks/<rank>/`.
"""

import json
import os
import sys
import traceback
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch.distributed as dist

from trainhall.training import rank
from trainhall.training.link.folder import AttemptFolder


def fork(work: Callable[[], int]) -> int:
    """Fork a child that leaves with `work()`'s code."""
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        code = work()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def hold_store(port: int, end: tuple[int, int]) -> int:
    """Serve the store until the parent closes its side of the pipe."""
    os.close(end[1])
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    os.write(port, store.port.to_bytes(4, "little"))
    os.read(end[0], 1)
    return 0


def run_rank(request: dict[str, Any], number: int, port: int) -> int:
    folder = AttemptFolder(Path(request["folder"]))
    folder.rank(number).mkdir(parents=True, exist_ok=True)
    for fd, path in ((1, folder.stdout(number)), (2, folder.stderr(number))):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(file, fd)
        os.close(file)
    world_size = str(request["world_size"])
    os.environ |= {
        "RANK": str(number),
        "LOCAL_RANK": str(number),
        "WORLD_SIZE": world_size,
        "LOCAL_WORLD_SIZE": world_size,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": "1",
        "TRAINHALL_ATTEMPT_FOLDER": request["folder"],
    }
    module, _, name = request["function"].partition(":")
    return int(getattr(import_module(module), name)(folder.path))


def train(folder: Path) -> int:
    """A rank of the folder's launch."""
    return rank.main()


def run_group(request: dict[str, Any]) -> list[int]:
    port = os.pipe()
    end = os.pipe()
    store = fork(lambda: hold_store(port[1], end))
    number = int.from_bytes(os.read(port[0], 4), "little")
    ranks = [fork(partial(run_rank, request, r, number)) for r in range(request["world_size"])]
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in ranks]
    for fd in (*port, *end):
        os.close(fd)
    os.waitpid(store, 0)
    return codes


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        answers.write(json.dumps({"codes": run_group(json.loads(line))}) + "\n")
        answers.flush()
