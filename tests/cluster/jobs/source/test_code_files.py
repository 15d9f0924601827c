"""Code of jobs is listed and compared, and shown to those alone who may read it."""

from typing import Any

import pytest
from support.archives import archive
from support.cluster.simulated import SimulatedCluster
from support.storage.stored import pieces

from trainhall.cluster.access.principal import Principal
from trainhall.cluster.access.roles import Role
from trainhall.cluster.errors import ForbiddenError, NotFoundError
from trainhall.cluster.jobs.source import code_files
from trainhall.training.spec.parse import validate_spec

SCRIPT: dict[str, Any] = {"name": "coded", "script": {"path": "train.py"}}


async def submit(cluster: SimulatedCluster, **files: str) -> str:
    digest, data = archive(**files)
    await cluster.coordinator.code.put(digest, pieces(data, 4096))
    spec = validate_spec({**SCRIPT, "code": digest})
    return (await cluster.coordinator.jobs.submit(spec))[0].id


async def test_code_is_compared_file_by_file(cluster: SimulatedCluster) -> None:
    same = {"util.py": "x = 1\n"}
    one = await submit(cluster, **{"train.py": "a\nb\n", "old.py": "1\n", "z.bin": "\0"}, **same)
    two = await submit(cluster, **{"train.py": "a\nc\n", "new.py": "2\n", "z.bin": "\0\0"}, **same)
    service = cluster.coordinator.job_code
    listed = await service.files(one)
    assert [item.path for item in listed.items] == ["old.py", "train.py", "util.py", "z.bin"]
    assert listed.size == 13
    found = await service.compare(one, two)
    changes = [(item.path, item.change, item.diff is None) for item in found.items]
    assert changes == [
        ("new.py", "added", False), ("old.py", "removed", False), ("train.py", "changed", False),
        ("z.bin", "changed", True),
    ]  # fmt: skip
    assert (found.items[2].diff or "").splitlines()[-2:] == ["-b", "+c"]
    assert (await service.compare(one, one)).identical


async def test_comparison_is_bounded(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code_files, "MAX_LINES", 5)
    one = await submit(cluster, **{"train.py": "a\nb\n", "b.py": "1\n"})
    two = await submit(cluster, **{"train.py": "a\nc\n", "b.py": "2\n"})
    found = await cluster.coordinator.job_code.compare(one, two)
    assert [item.diff is None for item in found.items] == [False, True]


async def test_viewer_reads_no_code(cluster: SimulatedCluster) -> None:
    job_id = await submit(cluster, **{"train.py": "1\n"})
    roles = {"default": Role.VIEWER}
    viewer = Principal(user="eve", is_admin=False, how="token", roles=roles)
    service = cluster.coordinator.job_code.limited_to(viewer)
    for reading in (
        service.files(job_id),
        service.archive(job_id),
        service.compare(job_id, job_id),
    ):
        with pytest.raises(ForbiddenError):
            await reading


async def test_job_without_code_has_no_files(cluster: SimulatedCluster) -> None:
    job_id = await cluster.submit()
    service = cluster.coordinator.job_code
    nothing: dict[str, object] = {"sha256": None, "commit": None, "size": 0, "items": []}
    assert (await service.files(job_id)).model_dump() == nothing
    with pytest.raises(NotFoundError):
        await service.archive(job_id)
