"""The way of an attempt to its data sets: found, downloaded and described for its ranks."""

import hashlib
import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from trainhall.cluster.agent import threads
from trainhall.cluster.agent.data.download import Download
from trainhall.cluster.agent.data.programs import DataFailedError, ProgramError, Programs
from trainhall.cluster.agent.data.store import DataStore
from trainhall.cluster.agent.data_dir import DataDir
from trainhall.cluster.agent.os_support.accounts import Owner
from trainhall.cluster.wire.data_sets import DataReport, Fingerprint
from trainhall.training.link.failure import Cause
from trainhall.training.spec.world.data import DataSpec, variable_of

_FILES, _FACTS = "files", "facts.json"


class PreparedData:
    """Data sets that an attempt is about to use."""

    def __init__(self, store: DataStore) -> None:
        self.paths: dict[str, str] = {}
        """By name."""
        self.found: list[Fingerprint] = []
        self._store = store
        self._held: list[Path] = []

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables that hold the paths."""
        return {variable_of(name): path for name, path in self.paths.items()}

    @property
    def report(self) -> DataReport:
        return DataReport(items=self.found)

    def hold(self, folder: Path) -> None:
        self._held.append(folder)

    def release(self) -> None:
        """To be called once the attempt's folder names them, or there will be none."""
        while self._held:
            self._store.release(self._held.pop())


class DataSets:
    """
    Args:
        variables: those that jobs get: proxies and certificates, say.
    """

    def __init__(
        self,
        data_dir: DataDir,
        variables: Mapping[str, str],
        *,
        store: DataStore | None = None,
    ) -> None:
        self._data_dir = data_dir
        self._store = store or DataStore(data_dir.data, self._in_use, readable=data_dir.is_shared)
        self._store.clean()
        self._programs = Programs(variables)

    @property
    def running(self) -> set[int]:
        """Pids of what this has started."""
        return self._programs.running

    def _in_use(self) -> list[Path]:
        folder = self._data_dir.data
        launches = [launch for _, launch in self._data_dir.launches() if launch is not None]
        paths = [Path(path) for launch in launches for path in launch.data.values()]
        kept = [path.relative_to(folder) for path in paths if path.is_relative_to(folder)]
        return [folder / path.parts[0] for path in kept if path.parts]

    async def prepare(
        self,
        specs: list[DataSpec],
        secrets: Mapping[str, str],
        report: Callable[[str], None],
        owner: Owner | None = None,
    ) -> PreparedData:
        """Return the data sets of an attempt, downloaded first where that is needed.

        Args:
            secrets: those that headers name.
            report: takes a few words on the work that is done.
            owner: who owns the job; None: this process.

        Raises:
            DataFailedError: one of them is not available on this host.
        """
        prepared = PreparedData(self._store)
        try:
            for each in specs:
                try:
                    if each.url is None:
                        await self._find(each, prepared, report, owner)
                    else:
                        headers = _headers(each, secrets)
                        await self._get(each, headers, prepared, report, owner)
                except DataFailedError as error:
                    raise DataFailedError(f"data set {each.name}: {error}", error.cause) from None
                except (OSError, ProgramError) as error:
                    why = error.strerror if isinstance(error, OSError) else None
                    raise DataFailedError(
                        f"data set {each.name}: {why or error}", Cause.NOT_STARTED
                    ) from error
        except BaseException:
            prepared.release()
            raise
        return prepared

    async def _find(
        self,
        data: DataSpec,
        prepared: PreparedData,
        report: Callable[[str], None],
        owner: Owner | None,
    ) -> None:
        report(f"reading data set {data.name}")
        request = {"path": data.path, "hash": data.sha256 is not None}
        answer = await self._programs.run("inspect", request, owner)
        if data.sha256 is not None and answer["sha256"] != data.sha256:
            raise DataFailedError(
                f"{data.path} has the SHA-256 {answer['sha256']}, and the spec says {data.sha256}"
            )
        prepared.paths[data.name] = str(data.path)
        prepared.found.append(Fingerprint(name=data.name, **answer))

    async def _get(
        self,
        data: DataSpec,
        headers: dict[str, str],
        prepared: PreparedData,
        report: Callable[[str], None],
        owner: Owner | None,
    ) -> None:
        key = _key(data, headers)

        async def build(part: Path) -> None:
            download = Download(
                self._programs, data, headers, owner, self._store.partial(key), self._store.limit,
                report,
            )  # fmt: skip
            report(f"downloading data set {data.name}")
            size = await download.run()
            await self._fill(part, data, download.part, size, report)

        report(f"preparing data set {data.name}")  # another attempt may download it at the moment
        folder = await self._store.get(key, build)
        prepared.hold(folder)
        facts = json.loads(await threads.finish((folder / _FACTS).read_text))
        files = folder / _FILES
        prepared.paths[data.name] = str(files if data.unpack else files / data.file_name)
        prepared.found.append(
            Fingerprint(name=data.name, kind="contents", sha256=data.sha256 or "", **facts)
        )

    async def _fill(
        self, part: Path, data: DataSpec, archive: Path, size: int, report: Callable[[str], None]
    ) -> None:
        """Make the folder of a data set from what was downloaded."""
        facts: dict[str, Any] = {"bytes": size, "files": 1}
        files = part / _FILES
        await threads.finish(part.mkdir)
        if data.unpack:
            report(f"unpacking data set {data.name}")
            request = {"archive": str(archive), "to": str(files), "limit": self._store.limit}
            try:
                facts = await self._programs.run("unpack", request)
            finally:
                await threads.finish(archive.unlink)
        else:
            await threads.finish(files.mkdir)
            await threads.finish(archive.rename, files / data.file_name)
        await threads.finish(partial((part / _FACTS).write_text, json.dumps(facts)))


def _headers(data: DataSpec, secrets: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of a download, with the values of secrets."""
    headers = data.headers_with(secrets)
    for name, value in headers.items():
        # The client would refuse it, with the value in its message.
        if not (value.isascii() and value.isprintable()) or value != value.strip():
            raise DataFailedError(
                f"its header {name}, with the values of its secrets, must be printable ASCII "
                "without spaces at its ends; `trainhall secrets set` replaces a value"
            )
    return headers


def _key(data: DataSpec, headers: Mapping[str, str]) -> str:
    """Return the key of a download. Who knows the hash alone does not get what needs a secret: its
    values are in the key."""
    name = None if data.unpack else data.file_name
    parts = [data.sha256, name, sorted(headers.items())]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
