"""Checkpoints whose manifest vouches for whatever somebody put in their folder."""

from pathlib import Path

from trainhall.training.checkpoint.format.draft import Draft
from trainhall.training.checkpoint.format.manifest import FileRecord, encode_manifest, read_manifest


def forge(folder: Path) -> None:
    """Make the manifest vouch for whatever the folder holds."""
    manifest = read_manifest(folder)
    draft = Draft(folder, manifest.name)
    files: list[FileRecord] = []
    for path in sorted(folder.iterdir()):
        if path.name != "manifest.json":
            data = path.read_bytes()
            path.unlink()
            files.append(draft.write(path.name, [data]))
    (folder / "manifest.json").write_bytes(
        encode_manifest(manifest.model_copy(update={"files": files}))
    )
