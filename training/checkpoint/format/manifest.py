"""`manifest.json`: what a checkpoint holds, and whether it still does. Free of torch.

The file's first line carries the SHA-256 of all bytes after it, so that no bit of the manifest
itself can flip unnoticed; as a whole the file is one JSON object:

    {"sha256":"<64 hex digits>",
    "manifest":{"format_version":1,"step":120,...,"files":[{"path":...,"size":...,"sha256":...}]}}

Hashes find damage. They do not prove who wrote a checkpoint, so reading one must be harmless
whatever it holds: paths stay within the folder, and nothing in it is ever unpickled or run.
"""

import errno
import hashlib
import io
import json
import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from trainhall.documented import Documented
from trainhall.training.checkpoint.format.errors import (
    BadCheckpointError,
    NewerFormatError,
    Problem,
)
from trainhall.training.checkpoint.format.names import MANIFEST, CheckpointName, parse_name

FORMAT_VERSION = 1
MAX_MANIFEST_BYTES = 256 * 1024 * 1024
HASH_BLOCK_BYTES = 4 * 1024 * 1024

_OTHER_FILE = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP}
"""Errors of another file than was written, or of none. Others are the system's: a disk
that does not read, a right that is missing."""
_HEAD = re.compile(rb'\{"sha256":"([0-9a-f]{64})",\n')


def safe_path(value: str) -> str:
    """Return a file's path within a checkpoint, unchanged.

    Raises:
        ValueError: it is absolute, leaves the folder, or is not written in the one plain way.
    """
    path = PurePosixPath(value)
    plain = path.parts != () and value == str(path) and "\\" not in value and value.isprintable()
    if not plain or path.is_absolute() or ".." in path.parts:
        raise ValueError(f"{value!r} is not a plain relative path within the checkpoint")
    return value


class _Part(Documented, BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class FileRecord(_Part):
    path: Annotated[str, AfterValidator(safe_path)]
    """Relative to the checkpoint's folder, with `/` between parts."""
    size: Annotated[int, Field(ge=0)]
    """Bytes."""
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Manifest(_Part):
    """The identity and the content of one checkpoint."""

    format_version: int = FORMAT_VERSION
    job_id: str
    attempt: Annotated[int, Field(ge=1)]
    generation: Annotated[int, Field(ge=1)]
    step: Annotated[int, Field(ge=0)]
    """Finished optimizer steps."""
    created_at: str
    """RFC 3339 in UTC, when the save began."""
    world_size: Annotated[int, Field(ge=1)]
    """Number of ranks that took part."""
    mesh: dict[str, int] = {}
    """Degree of each kind of parallelism, such as `{"data": 4}`."""
    metrics: dict[str, Any] = {}
    """The job's last metrics at this step."""
    extra: dict[str, Any] = {}
    """State beside tensors: sampler, schedule, loss scaler, random state of every rank."""
    files: list[FileRecord]
    """Every file of the checkpoint but the manifest."""

    @property
    def name(self) -> CheckpointName:
        return CheckpointName(self.step, self.attempt, self.generation)

    @model_validator(mode="after")
    def _each_path_once(self) -> "Manifest":
        seen = {MANIFEST}
        for file in self.files:
            if file.path in seen:
                raise ValueError(f"{file.path!r} is listed twice, or is the manifest itself")
            seen.add(file.path)
        return self


def encode_manifest(manifest: Manifest) -> bytes:
    """Encode the bytes of `manifest.json`.

    Raises:
        ValueError: `extra` or `metrics` hold what JSON cannot (NaN, infinity).
    """
    fields = json.dumps(
        manifest.model_dump(mode="python"), ensure_ascii=False, allow_nan=False, indent=1
    )
    body = b'"manifest":' + fields.encode() + b"}\n"
    return b'{"sha256":"' + hashlib.sha256(body).hexdigest().encode() + b'",\n' + body


def decode_manifest(data: bytes) -> Manifest:
    """Parse `manifest.json`, checking its own hash first.

    Raises:
        BadCheckpointError: it is damaged, or says what no checkpoint may say.
        NewerFormatError: this version does not know its format.
    """
    head = _HEAD.match(data)
    if head is None:
        raise _bad("a manifest that begins with its SHA-256", repr(data[:24]))
    expected, body = head.group(1).decode(), data[head.end() :]
    found = hashlib.sha256(body).hexdigest()
    if found != expected:
        raise _bad(f"SHA-256 {expected}", found)
    try:
        fields = json.loads(data)["manifest"]
    except (ValueError, KeyError, RecursionError) as error:
        raise _bad("JSON with the key 'manifest'", f"{type(error).__name__}: {error}") from error
    version = fields.get("format_version") if isinstance(fields, dict) else None
    if type(version) is int and version > FORMAT_VERSION:
        expected = f"format version {FORMAT_VERSION} or older"
        found = f"version {version}, written by a newer Trainhall; upgrade this one to read it"
        raise NewerFormatError([Problem(MANIFEST, expected, found, is_damage=False)])
    try:
        return Manifest.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "manifest"
        raise _bad(f"a valid field {where}", first["msg"]) from error


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a checkpoint's folder, and no other file.

    Raises:
        BadCheckpointError: there is none, it is damaged, or it belongs to another checkpoint.
    """
    return _manifest_of(folder, _manifest_bytes(folder))


def read_files(folder: Path) -> list[FileRecord]:
    """Return records of every file of a checkpoint's folder, the manifest last.

    Raises:
        BadCheckpointError: as `read_manifest`.
    """
    data = _manifest_bytes(folder)
    own = FileRecord(path=MANIFEST, size=len(data), sha256=hashlib.sha256(data).hexdigest())
    return [*_manifest_of(folder, data).files, own]


def _manifest_bytes(folder: Path) -> bytes:
    try:
        if not folder.is_dir():
            raise BadCheckpointError(
                [Problem(".", "a folder", "nothing" if not folder.exists() else "a file")]
            )
        with open_within(folder, MANIFEST) as file:
            size = os.fstat(file.fileno()).st_size
            if size > MAX_MANIFEST_BYTES:
                raise _bad(f"at most {MAX_MANIFEST_BYTES} bytes", f"{size} bytes")
            return file.readall()
    except OSError as error:
        raise BadCheckpointError([_not_read(MANIFEST, "a manifest", error)]) from error


def _manifest_of(folder: Path, data: bytes) -> Manifest:
    manifest = decode_manifest(data)
    named = parse_name(folder.name)
    if named is not None and named != manifest.name:
        raise _bad(f"the manifest of {folder.name}", f"that of {manifest.name}")
    return manifest


def verify_folder(path: Path) -> list[Problem]:
    """Hash every file that the manifest lists; return what is wrong, nothing if all are intact.

    Files that the manifest does not list are ignored: nothing ever reads them.
    """
    try:
        manifest = read_manifest(path)
    except BadCheckpointError as error:
        return error.problems
    return verify_files(path, manifest.files)


def verify_files(folder: Path, files: list[FileRecord]) -> list[Problem]:
    """Compare files with their records, sizes before hashes (a truncated file is reported as
    such)."""
    problems = (_verify_file(folder, record) for record in files)
    return [problem for problem in problems if problem is not None]


def divide(files: Sequence[FileRecord], parts: int) -> list[list[FileRecord]]:
    """Divide the files into so many parts of similar size: each one, largest first, to the smallest
    part."""
    divided: list[list[FileRecord]] = [[] for _ in range(parts)]
    sizes = [0] * parts
    for file in sorted(files, key=lambda f: (-f.size, f.path)):
        part = sizes.index(min(sizes))
        divided[part].append(file)
        sizes[part] += file.size
    return divided


def open_within(folder: Path, path: str) -> io.FileIO:
    """Open a regular file of a checkpoint for reading bytes; no part of its path may be a link.

    Raises:
        OSError: it is missing, a link, or not a regular file.
    """
    parts = PurePosixPath(path).parts
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for i, part in enumerate(parts):
            last = i == len(parts) - 1
            # O_NONBLOCK: opening a planted FIFO must not wait for a writer.
            kind = os.O_NONBLOCK if last else os.O_DIRECTORY
            inner = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | kind, dir_fd=fd)
            os.close(fd)
            fd = inner
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(f"{path} is not a regular file")
        return os.fdopen(fd, "rb", buffering=0)
    except BaseException:
        os.close(fd)
        raise


def describe(error: OSError) -> str:
    """Return an operating system's error in plain words, without the path."""
    match error.errno:
        case errno.ENOENT:
            return "no such file"
        case errno.ELOOP:
            return "a symbolic link"
        case _:
            return error.strerror or str(error)


def _verify_file(folder: Path, record: FileRecord) -> Problem | None:
    try:
        with open_within(folder, record.path) as file:
            size = os.fstat(file.fileno()).st_size
            if size != record.size:
                return Problem(record.path, f"{record.size} bytes", f"{size} bytes")
            digest = hashlib.sha256()
            block = bytearray(min(HASH_BLOCK_BYTES, max(size, 1)))
            view = memoryview(block)
            while read := file.readinto(block):
                digest.update(view[:read])
    except OSError as error:
        return _not_read(record.path, f"a file of {record.size} bytes", error)
    found = digest.hexdigest()
    if found != record.sha256:
        return Problem(record.path, f"SHA-256 {record.sha256}", found)
    return None


def _not_read(path: str, expected: str, error: OSError) -> Problem:
    is_other = error.errno is None or error.errno in _OTHER_FILE
    return Problem(path, expected, describe(error), is_damage=is_other)


def _bad(expected: str, found: str) -> BadCheckpointError:
    return BadCheckpointError([Problem(MANIFEST, expected, found)])
