"""Images by an engine that only records what it is asked."""

import platform
from pathlib import Path

import pytest
from support.nodes.containers import DIGEST, FakeEngine

from trainhall.cluster.agent.containers import images
from trainhall.cluster.agent.containers.attempt_containers import AttemptContainers, name_of
from trainhall.cluster.agent.containers.engine import Engine, EngineError, HostEngine
from trainhall.cluster.agent.os_support import accounts
from trainhall.cluster.agent.os_support.accounts import Owner
from trainhall.training.link.launch import AttemptContainer

pytestmark = pytest.mark.processes

CONTAINER = AttemptContainer(image="lab@sha256:1", python="/usr/bin/true", mounts={"/a": "/b"})


def found() -> Engine:
    engine = HostEngine().find()
    assert engine is not None
    return engine


def test_host_without_an_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert HostEngine().find() is None


async def test_present_image_is_pinned_without_a_pull(fake_engine: FakeEngine) -> None:
    assert str(found()) == "podman 9.9"
    assert await images.fetch(found(), "lab/train:1") == f"lab/train@{DIGEST}"
    assert fake_engine.calls("pull") == []


async def test_unknown_image_fails_with_the_reply_of_podman(fake_engine: FakeEngine) -> None:
    with pytest.raises(EngineError, match=r"^reading manifest: manifest unknown$"):
        await images.fetch(found(), "nosuch:1")
    # Else Podman would read a folder of the host under some names.
    assert fake_engine.calls("pull") == [["pull", "--quiet", "docker://nosuch:1"]]
    with pytest.raises(EngineError, match="localhost/nosuch: image not known"):
        await images.fetch(found(), "localhost/nosuch")
    with pytest.raises(EngineError, match="no digest by which a registry knows it"):
        await images.fetch(found(), "sha256:nosuch")


async def test_image_is_asked_for_its_python(fake_engine: FakeEngine) -> None:
    image = await images.describe(found(), "lab:1", confined=True)
    assert image.python_version == platform.python_version()
    refusal = await images.refusal_of_import(found(), image, {}, "nosuch", confined=True)
    assert refusal is not None
    assert "No module named 'nosuch'" in refusal
    for call in fake_engine.calls("run"):
        assert {"65534:65534", "no-new-privileges", "none"} <= {*call}


@pytest.mark.parametrize(
    ("reference", "pinned"),
    [
        ("registry.lab:5000/team/train:2", "registry.lab:5000/team/train@sha256:2"),
        ("train:1", "docker.io/library/train@sha256:1"),
        ("team/train@sha256:2", "registry.lab:5000/team/train@sha256:2"),
    ],
)
def test_image_is_pinned_by_its_own_name(reference: str, pinned: str) -> None:
    digests = [
        "mirror.lab/other@sha256:1", "docker.io/library/train@sha256:1",
        "registry.lab:5000/team/train@sha256:2",
    ]  # fmt: skip
    assert images._pinned({"Id": "ab", "RepoDigests": digests}, reference) == pinned


async def test_probe_that_hangs_is_removed(
    fake_engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "_PROBE", "import time; time.sleep(600)")
    monkeypatch.setattr(images, "_PROBE_SECONDS", 0.0)
    monkeypatch.setattr(images, "_END_SECONDS", 1.0)
    with pytest.raises(EngineError, match="does not answer"):
        await images.describe(found(), "lab:1", confined=True)
    (call,) = fake_engine.calls("run")
    name = call[call.index("--name") + 1]
    assert fake_engine.calls("rm") == [["rm", "--force", name]]


async def test_command_that_hangs_is_ended(fake_engine: FakeEngine) -> None:
    with pytest.raises(EngineError, match=r"^podman run timed out after 0.2 s$"):
        await found().run("run", "--entrypoint", "sleep", "lab:1", "600", seconds=0.2)


def test_agents_of_one_host_have_containers_of_their_own(tmp_path: Path) -> None:
    one, two = (name_of(tmp_path / agent / "attempts" / "job" / "1") for agent in ("a", "b"))
    assert one != two


async def start(folder: Path, *, confined: bool, user: Owner, memory: int | None = None) -> None:
    containers = AttemptContainers(folder, HostEngine(), confined=confined)
    await containers.start(
        folder, CONTAINER, user, [folder], gpus=memory is not None, memory=memory
    )


async def test_confined_container_has_no_privileges(
    fake_engine: FakeEngine, tmp_path: Path
) -> None:
    await start(tmp_path, confined=True, user=Owner(70001, 70002), memory=1000)
    (call,) = fake_engine.calls("run")
    joined = " ".join(call)
    for part in (
        "--user 70001:70002", "--cap-drop all", "--security-opt no-new-privileges",
        "--memory 1000", "--device nvidia.com/gpu=all", "--network host",
        f"--volume {tmp_path}:{tmp_path}:rw --volume /b:/a:ro", f"--name {name_of(tmp_path)}",
    ):  # fmt: skip
        assert part in joined
    assert "--privileged" not in joined


async def test_container_has_the_groups_of_its_user(
    fake_engine: FakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounts, "groups_of", lambda owner: [owner.gid, 5, 6])
    await start(tmp_path, confined=True, user=Owner(70001, 70002))
    (call,) = fake_engine.calls("run")
    assert "--user 70001:70002 --group-add 5 --group-add 6 " in " ".join(call)


async def test_path_with_a_comma_is_refused(fake_engine: FakeEngine, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="its name has a comma or a colon"):
        await start(tmp_path / "a,b", confined=False, user=Owner(0, 0))
    assert fake_engine.calls("run") == []
