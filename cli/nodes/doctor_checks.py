"""The checks of `trainhall doctor`. Each says what it saw, and what to do about it."""

import contextlib
import email.utils
import getpass
import json
import os
import platform
import resource
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import httpx
import psutil

from trainhall import __version__
from trainhall.api.guard import is_loopback
from trainhall.cli.base.client import Client, problem_of
from trainhall.cli.base.errors import CliError, NotAllowedError
from trainhall.cli.base.output import one_line, size
from trainhall.cli.base.trust import anchor_of
from trainhall.cluster.tls import describe_refusal, tls_context

Status = Literal["ok", "warn", "fail"]

OLDEST_TORCH, NEWEST_TORCH = (2, 11), (2, 14)
SLOW_IMPORT_SECONDS = 15.0
PROBE_SECONDS = 120.0
ANSWER_SECONDS = 3.0
CLOCK_SECONDS = 5.0
LITTLE_SPACE, NO_SPACE = 5 * 2**30, 256 * 2**20
FEW_FILES, TOO_FEW_FILES = 4096, 512
SMALL_SHM = 256 * 2**20
REMOTE_SYSTEMS = {"nfs", "nfs4", "cifs", "smb3", "lustre", "ceph", "fuse.sshfs", "9p", "glusterfs"}

TORCH_PROBE = """
import json, time
began = time.monotonic()
import torch
seconds = time.monotonic() - began
found = {"version": torch.__version__, "cuda": torch.version.cuda, "seconds": seconds,
        "devices": torch.cuda.device_count() if torch.cuda.is_available() else 0, "nccl": None}
if torch.distributed.is_available() and torch.distributed.is_nccl_available():
    found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Check:
    """Result of one check."""

    name: str
    status: Status
    detail: str
    remedy: str = ""


def all_checks(
    *, url: str, needs_coordinator: bool, port: int, data_dir: Path, shared: Path | None
) -> Iterator[Check]:
    """Yield every check, one after another, as soon as it is known."""
    python = f"{platform.python_version()} at {sys.executable}, Trainhall {__version__}"
    yield Check("python", "ok", python)
    torch = probe_torch(sys.executable)
    yield check_torch(torch)
    yield from check_gpus(torch, driver())
    yield from check_coordinator(url, port, needed=needs_coordinator)
    yield from check_login(url)
    yield from check_nodes(url)
    yield check_data_dir(data_dir)
    yield check_users(os.geteuid(), getpass.getuser())
    if shared is not None:
        yield check_shared_storage(shared)
    yield check_files(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    if Path("/dev/shm").is_dir():
        yield check_shm(shutil.disk_usage("/dev/shm").total)
    yield check_name(socket.gethostname())


def check_users(uid: int, name: str) -> Check:
    """Check whether an agent of this user could run jobs as other users."""
    if uid == 0:
        return Check("users", "ok", "an agent of root can run jobs as other users (--run-as)")
    detail = f"an agent of {name} runs jobs as {name}, who can read its credential"
    return Check("users", "ok", f"{detail}; one of root can run them as other users (--run-as)")


def probe_torch(python: str) -> dict[str, Any]:
    """Return what PyTorch reports in a process of its own; `{}`: absent; or `{error: …}`."""
    absent = "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is None)"
    if subprocess.run([python, "-c", absent], capture_output=True, check=False).returncode:
        return {}
    try:
        done = subprocess.run(
            [python, "-W", "ignore", "-c", TORCH_PROBE],
            capture_output=True, text=True, check=False, timeout=PROBE_SECONDS,
        )  # fmt: skip
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return {"error": f"its import took more than {PROBE_SECONDS:g} s"}
    except (ValueError, LookupError):
        last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        return {"error": last[0]}
    return found


def check_torch(found: dict[str, Any]) -> Check:
    """Check PyTorch: there, of a version that was tried, and quick to import."""
    install = "pip install 'trainhall[train]'"
    if not found:
        return Check("torch", "warn", "not installed", f"hosts that run jobs need it: {install}")
    if "error" in found:
        return Check("torch", "fail", f"cannot be imported: {found['error']}",
                     f"reinstall it: {install} --force-reinstall")  # fmt: skip
    build = f"CUDA {found['cuda']}" if found["cuda"] else "CPU build"
    detail = f"{found['version']} ({build}), imported in {found['seconds']:.1f} s"
    version = tuple(int(part) for part in found["version"].split("+")[0].split(".")[:2])
    if not OLDEST_TORCH <= version < NEWEST_TORCH:
        low, high = (".".join(map(str, v)) for v in (OLDEST_TORCH, NEWEST_TORCH))
        remedy = f"Trainhall needs at least {low} and less than {high}: {install}"
        return Check("torch", "fail", detail, remedy)
    if found["seconds"] > SLOW_IMPORT_SECONDS:
        remedy = "put the virtual environment on a local disk: each start takes this long"
        return Check("torch", "warn", detail, remedy)
    return Check("torch", "ok", detail)


def driver() -> dict[str, Any]:
    """Return what NVIDIA's driver reports: `{version, cuda, gpus}`; `{}` without one."""
    import pynvml

    from trainhall.cluster.agent.devices import has_nvml, list_gpus

    if not has_nvml():
        return {}
    with contextlib.suppress(pynvml.NVMLError):
        version = pynvml.nvmlSystemGetDriverVersion()
        cuda = int(pynvml.nvmlSystemGetCudaDriverVersion())
        return {
            "version": version if isinstance(version, str) else version.decode(),
            "cuda": (cuda // 1000, cuda % 1000 // 10),
            "gpus": [f"{gpu.name} ({size(gpu.memory_total)})" for gpu in list_gpus()],
        }
    return {}


def check_gpus(torch: dict[str, Any], found: dict[str, Any]) -> Iterator[Check]:
    """Check the GPUs, and whether the driver and PyTorch agree about them."""
    if not found:
        yield Check("gpus", "ok", "no NVIDIA driver: this host trains on its CPU")
        return
    gpus = found["gpus"]
    yield Check("gpus", "ok" if gpus else "warn", f"{len(gpus)}: {', '.join(gpus)}"
                if gpus else "the driver finds none",
                "" if gpus else "look at the output of `nvidia-smi`")  # fmt: skip
    newest = ".".join(map(str, found["cuda"]))
    detail = f"driver {found['version']} (CUDA up to {newest})"
    if not torch or "error" in torch or not gpus:
        yield Check("cuda", "ok", detail)
        return
    if torch["cuda"] is None:
        remedy = "install a CUDA build of PyTorch: https://pytorch.org/get-started/locally"
        yield Check("cuda", "fail", f"{detail}, but PyTorch is a CPU build", remedy)
        return
    detail += f", PyTorch for CUDA {torch['cuda']}, NCCL {torch['nccl'] or 'missing'}"
    if int(torch["cuda"].split(".")[0]) > found["cuda"][0]:
        remedy = f"update the driver, or install PyTorch for CUDA {found['cuda'][0]}"
        yield Check("cuda", "fail", detail, remedy)
    elif torch["devices"] != len(gpus):
        detail += f"; PyTorch sees {torch['devices']} of {len(gpus)} GPUs"
        yield Check("cuda", "fail", detail,
                    "look at CUDA_VISIBLE_DEVICES, and try `nvidia-smi`")  # fmt: skip
    elif torch["nccl"] is None:
        yield Check("cuda", "fail", detail, "install a build of PyTorch with NCCL")
    else:
        yield Check("cuda", "ok", detail)


def check_coordinator(url: str, port: int, *, needed: bool) -> Iterator[Check]:
    """Check that the coordinator answers, with our version and clock; or its port is free."""
    version: str | None = None
    began = time.time()
    try:
        context = tls_context(url, anchor_of(url))
        reply = httpx.get(f"{url}/healthz", timeout=ANSWER_SECONDS, trust_env=False, verify=context)
    except (httpx.HTTPError, httpx.InvalidURL, CliError) as error:
        why = describe_refusal(error, url) or str(error) or type(error).__name__
        detail = f"no answer at {url} ({why})"
        remedy = "start one with `trainhall up`, or give its URL with --url"
    else:
        version = _version_in(reply)
        detail = f"{url} is not a Trainhall coordinator"
        if not reply.is_success:
            detail = f"{url}: {one_line(problem_of(reply).message)}"
        remedy = "check what answers there, or give the coordinator's URL with --url"
    if version is None:
        yield Check("coordinator", "fail" if needed else "warn", detail, remedy)
        if not needed:
            yield check_port(port)
        return
    if version == __version__:
        yield Check("coordinator", "ok", f"{url} answers, version {version}")
    else:
        yield Check("coordinator", "warn", f"{url} is version {version}, this is {__version__}",
                    "install the same version on both")  # fmt: skip
    if "date" in reply.headers:
        server_time = email.utils.parsedate_to_datetime(reply.headers["date"]).timestamp()
        yield check_clock(server_time - (began + time.time()) / 2)


def check_login(url: str) -> Iterator[Check]:
    """Check who may use the coordinator; no result without one."""
    try:
        with Client(url, attempts=1, timeout=ANSWER_SECONDS) as client:
            me = client.get("/auth/me")
            simulated = client.is_simulated()
    except NotAllowedError as error:
        yield Check("login", "warn", one_line(error.message), f"run `trainhall login {url}`")
        return
    except CliError:
        return  # reported above, or an older one
    how, user = me.get("how"), one_line(str(me.get("user")))
    if how == "none" and not simulated:
        yield Check(
            "login",
            "warn",
            "none is needed: every user of the coordinator's host and every job may do all",
            "start the coordinator without TRAINHALL_AUTH=none",
        )
    elif how == "token":
        yield Check(
            "login",
            "ok",
            f"as {user}; jobs that run as the coordinator's user can read its credentials",
        )


def check_nodes(url: str) -> Iterator[Check]:
    """Check for nodes that take no jobs, with the reason; no result without a coordinator."""
    try:
        with Client(url, attempts=1, timeout=ANSWER_SECONDS) as client:
            nodes = list(client.items("/cluster/nodes"))
    except CliError:
        return  # reported above, or not for programs of this host
    for node in nodes:
        detail = f"{one_line(node['name'])} is {node['state']}: {one_line(node['reason'])}"
        if node["state"] in ("draining", "drained"):
            yield Check(
                "node",
                "warn",
                detail,
                f"let it take jobs again with `trainhall nodes undrain {node['name']}`",
            )
        elif node["state"] in ("suspect", "lost"):
            yield Check("node", "warn", detail, "check that the host and its agent run")


def _version_in(reply: httpx.Response) -> str | None:
    """Return a coordinator's version; None: no coordinator answers, or it refuses."""
    try:
        payload = reply.json()
    except ValueError:
        return None
    return str(payload["version"]) if isinstance(payload, dict) and "version" in payload else None


def check_clock(seconds: float) -> Check:
    """Check the offset of the coordinator's clock to this host's, in whole seconds."""
    if abs(seconds) < CLOCK_SECONDS:
        return Check("clock", "ok", "agrees with the coordinator's")
    which = "behind" if seconds > 0 else "ahead of"
    detail = f"{abs(seconds):.0f} s {which} the coordinator's"
    return Check("clock", "warn", detail, "synchronize both with NTP (`timedatectl set-ntp true`)")


def check_port(port: int) -> Check:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            return Check("port", "warn", f"{port} cannot be listened on: {error.strerror}",
                         f"find its user with `ss -ltnp 'sport = :{port}'`, or choose another "
                         "with --port")  # fmt: skip
    return Check("port", "ok", f"{port} is free")


def check_data_dir(folder: Path) -> Check:
    """Check that the data folder is writable, has space, and is not on a network."""
    name = "data folder"
    try:
        # What is not there yet is made below the nearest folder that is: a check leaves nothing.
        there = next(parent for parent in (folder, *folder.parents) if parent.exists())
        _write_and_read_back(there)
        free = shutil.disk_usage(there).free
    except OSError as error:
        return Check(name, "fail", f"{folder}: {error.strerror or error}",
                     "choose another with --data-dir or TRAINHALL_DATA_DIR")  # fmt: skip
    detail = f"{folder}, {size(free)} free"
    if free < NO_SPACE:
        return Check(
            name, "fail", detail, "free some space, or choose another folder with --data-dir"
        )
    system = _file_system(there)
    if system in REMOTE_SYSTEMS:
        return Check(name, "warn", f"{detail}, on {system}",
                     "SQLite and Unix sockets need a local disk: choose one with --data-dir"
                     )  # fmt: skip
    if free < LITTLE_SPACE:
        return Check(name, "warn", detail, "checkpoints need space: free some, or use --data-dir")
    return Check(name, "ok", detail)


def check_shared_storage(folder: Path) -> Check:
    """Check that a checkpoint can be written, synced, read back and renamed there."""
    name = "shared storage"
    began = time.monotonic()
    try:
        if not folder.is_absolute() or not folder.is_dir():
            why = "does not exist" if not folder.exists() else "is not a folder"
            detail = f"{folder} {why if folder.is_absolute() else 'is not an absolute path'}"
            return Check(name, "fail", detail, "mount it at the same path on every node")
        _write_and_read_back(folder)
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return Check(name, "fail", f"{folder}: {error.strerror or error}",
                     "give the agent's user write permission there")  # fmt: skip
    milliseconds = (time.monotonic() - began) * 1000
    detail = f"{folder}: written, synced, renamed and read back in {milliseconds:.0f} ms"
    return Check(name, "ok", f"{detail}, {size(free)} free")


def _write_and_read_back(folder: Path) -> None:
    """Write, rename and read a small file, as a checkpoint does.

    Raises:
        OSError: it does not work here.
    """
    data = secrets.token_bytes(1 << 16)
    trial = folder / f".trainhall-{secrets.token_hex(6)}"
    renamed = trial.with_suffix(".renamed")
    try:
        with trial.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        trial.rename(renamed)
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        if renamed.read_bytes() != data:
            raise OSError(f"{renamed} has other content than was written")
    finally:
        trial.unlink(missing_ok=True)
        renamed.unlink(missing_ok=True)


def _file_system(folder: Path) -> str:
    """Return the type of the file system that holds a folder, as far as it can be found."""
    where = folder.resolve()
    mounts = [
        (len(Path(p.mountpoint).parts), p.fstype)
        for p in psutil.disk_partitions(all=True)
        if where.is_relative_to(p.mountpoint)
    ]
    return max(mounts, default=(0, ""))[1]


def check_files(limit: int) -> Check:
    detail = "no limit" if limit < 0 else f"{limit} at once"
    remedy = "raise it: `ulimit -n 65536`, or LimitNOFILE= in the unit"
    if 0 <= limit < TOO_FEW_FILES:
        return Check("open files", "fail", detail, remedy)
    if 0 <= limit < FEW_FILES:
        return Check("open files", "warn", detail, remedy)
    return Check("open files", "ok", detail)


def check_shm(total: int) -> Check:
    """Check shared memory: NCCL and data loaders hand tensors over through it."""
    detail = f"/dev/shm has {size(total)}"
    if total < SMALL_SHM:
        return Check("shared memory", "warn", detail,
                     "NCCL and data loaders may run out: in Docker use --shm-size=1g")  # fmt: skip
    return Check("shared memory", "ok", detail)


def check_name(host: str) -> Check:
    """Check that this host's name leads to an address by which others reach it."""
    name = "name"
    try:
        found = sorted({str(entry[4][0]) for entry in socket.getaddrinfo(host, None)})
    except OSError as error:
        return Check(name, "warn", f"{host} does not resolve: {error.strerror}",
                     "add it to /etc/hosts, or give `trainhall agent` an --address")  # fmt: skip
    detail = f"{host} is {', '.join(found)}"
    if all(is_loopback(address) for address in found):
        return Check(name, "warn", f"{detail}: this host only",
                     "for jobs over several hosts give `trainhall agent` an --address")  # fmt: skip
    return Check(name, "ok", detail)
