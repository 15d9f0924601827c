"""Program that describes a file or folder of this host, as the user of a job who is to read it.

Request: `{"path": path, "hash": bool}`, where `hash` asks for the hash of a file however large it
is. Answer: a `cluster.wire.data_sets.Fingerprint` without its name.

A file of up to 64 MiB, and a folder whose files have no more together, are known by their contents.
Of all else names, sizes and times of modification are hashed, of a folder those of its first 20,000
files.
"""

import hashlib
import json
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

from trainhall.cluster.agent.data import programs

CONTENTS_BYTES = 64 * 2**20
MAX_FILES = 20_000


def main() -> int:
    request = programs.read_request()
    path = Path(request["path"])
    try:
        found = _describe(path, whole=request["hash"])
    except OSError as error:
        where = "" if error.filename in (None, str(path)) else f" ({error.filename})"
        return programs.fail(f"{path} cannot be read: {error.strerror}{where}")
    except ValueError as error:
        return programs.fail(str(error))
    sys.stdout.write(json.dumps(found))
    return 0


def _describe(path: Path, *, whole: bool) -> dict[str, object]:
    found = path.stat()
    if stat.S_ISREG(found.st_mode):
        if whole or found.st_size <= CONTENTS_BYTES:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            return _fingerprint("contents", digest, found.st_size, 1)
        with path.open("rb"):
            pass  # as a rank will
        digest = hashlib.sha256(_line(path.name, found)).hexdigest()
        return _fingerprint("listing", digest, found.st_size, 1)
    if not stat.S_ISDIR(found.st_mode):
        raise ValueError(f"{path} is neither a file nor a folder")
    if whole:
        raise ValueError(f"{path} is a folder, and sha256 is for a file; leave it out")
    return _describe_folder(path)


def _describe_folder(path: Path) -> dict[str, object]:
    listed = list(_files(path))
    files, rest = listed[:MAX_FILES], listed[MAX_FILES:]
    size = sum(each.st_size for _, each in files)
    digest = hashlib.sha256()
    is_small = not rest and size <= CONTENTS_BYTES
    for name, each in files:
        if is_small:
            digest.update(f"{name}\0{each.st_size}\0".encode(errors="surrogateescape"))
            with (path / name).open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        else:
            digest.update(_line(name, each))
    kind = "contents" if is_small else "listing"
    return _fingerprint(kind, digest.hexdigest(), size, len(files), is_partial=bool(rest))


def _files(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the files of a folder in the order of their names, with one more than are described."""
    count = 0

    def fail(error: OSError) -> None:
        raise error

    for base, folders, names in os.walk(folder, onerror=fail):
        folders.sort()
        for name in sorted(names):
            path = Path(base, name)
            try:
                found = path.stat()
            except FileNotFoundError:
                continue  # a link that leads nowhere
            if stat.S_ISREG(found.st_mode):
                yield str(path.relative_to(folder)), found
                count += 1
                if count > MAX_FILES:
                    return


def _line(name: str, found: os.stat_result) -> bytes:
    return f"{name}\0{found.st_size}\0{int(found.st_mtime)}\n".encode(errors="surrogateescape")


def _fingerprint(
    kind: str, sha256: str, size: int, files: int, *, is_partial: bool = False
) -> dict[str, object]:
    return {
        "kind": kind, "sha256": sha256, "bytes": size, "files": files, "is_partial": is_partial,
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
