"""Clones of git repositories: one commit, no prompt, git's own words, and an end in any case."""

import asyncio
import os
import socket
from pathlib import Path

import pytest
from support.forking.run_as import a_range, needs_root, passable_folder
from support.git.repositories import Repository, git_server

from trainhall.cluster.agent.git.clone import Cloning
from trainhall.cluster.agent.git.errors import CloneError, error_of
from trainhall.cluster.agent.os_support import accounts
from trainhall.cluster.agent.os_support.accounts import Owner
from trainhall.training.spec.source.git_code import GitCode

pytestmark = pytest.mark.processes


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "served" / "lab")


def cloning(tmp_path: Path, **more: float) -> Cloning:
    variables = {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home")}
    return Cloning(variables, set(), allows_files=True, **more)  # type: ignore[arg-type]


def address(repository: Repository) -> str:
    return f"file://{repository.folder}"


async def test_clone_takes_branch_tag_and_commit(tmp_path: Path, repository: Repository) -> None:
    first = repository.commit(train="one")
    repository.git("tag", "-a", "v1", "-m", "the first")
    second = repository.commit(train="two")
    repository.git("branch", "old", first)
    third = repository.commit(train="three")
    wanted = {"HEAD": third, "main": third, "v1": first, "old": first, second: second,
              second[:9]: second}  # fmt: skip
    for number, (ref, commit) in enumerate(wanted.items()):
        folder = tmp_path / f"clone-{number}" / "code"
        folder.parent.mkdir()
        code = GitCode(git=address(repository), ref=ref)
        assert await cloning(tmp_path).clone(code, folder) == commit
        text = {first: "one", second: "two", third: "three"}[commit]
        assert (folder / "train.py").read_text() == text
        assert [path.name for path in folder.parent.iterdir()] == ["code"]


async def test_clone_takes_the_pinned_commit(tmp_path: Path, repository: Repository) -> None:
    first = repository.commit(train="one")
    repository.commit(train="two")
    code = GitCode(git=address(repository), ref="main")
    assert await cloning(tmp_path).clone(code, tmp_path / "code", commit=first) == first
    assert (tmp_path / "code" / "train.py").read_text() == "one"
    with pytest.raises(CloneError, match=f"no branch, tag or commit {'0' * 40}"):
        await cloning(tmp_path).clone(code, tmp_path / "other", commit="0" * 40)


async def test_hooks_and_configuration_are_not_run(tmp_path: Path, repository: Repository) -> None:
    repository.commit(train="one")
    hooks = tmp_path / "home" / "hooks"
    hooks.mkdir(parents=True)
    ran = tmp_path / "ran"
    hook = hooks / "post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {ran}\n")
    hook.chmod(0o755)
    (tmp_path / "home" / ".gitconfig").write_text(
        f'[core]\n hooksPath = {hooks}\n[url "ext::touch {ran} "]\n insteadOf = https://x.example/\n'
    )
    await cloning(tmp_path).clone(GitCode(git=address(repository)), tmp_path / "code")
    with pytest.raises(CloneError, match="transport 'ext' not allowed"):
        await cloning(tmp_path).clone(GitCode(git="https://x.example/a"), tmp_path / "other")
    assert not ran.exists()


async def test_missing_ref_is_named(tmp_path: Path, repository: Repository) -> None:
    repository.commit(train="one")
    code = GitCode(git=address(repository), ref="nosuch")
    with pytest.raises(
        CloneError, match=r"no branch, tag or commit nosuch: couldn't find"
    ) as found:
        await cloning(tmp_path).clone(code, tmp_path / "code")
    assert not found.value.is_passing


async def test_private_repository_takes_a_token(tmp_path: Path, repository: Repository) -> None:
    commit = repository.commit(train="one")
    token = "s3cret/of:the@lab"
    with git_server(tmp_path / "served", token) as server:
        code = GitCode(git=f"{server.url}/lab/.git", token="LAB")
        (tmp_path / "a b").mkdir()
        folder = tmp_path / "a b" / "code"
        assert await cloning(tmp_path).clone(code, folder, token=token) == commit
        assert server.expected in server.authorizations
        assert [path.name for path in folder.parent.iterdir()] == ["code"]
        found = [p for p in folder.rglob("*") if p.is_file() and b"s3cret" in p.read_bytes()]
        assert found == []
        with pytest.raises(CloneError, match="store an access token") as refused:
            await cloning(tmp_path).clone(code, tmp_path / "other")
        assert not refused.value.is_passing
        with pytest.raises(CloneError, match="does not accept the token"):
            await cloning(tmp_path).clone(code, tmp_path / "third", token="wrong")


@needs_root
async def test_git_runs_as_the_user_of_the_job(tmp_path: Path, repository: Repository) -> None:
    commit = repository.commit(train="one")
    uid = int(a_range(1).partition("-")[0])
    owner = Owner(uid, uid)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / ".gitconfig").write_text("not a configuration")
    with git_server(tmp_path / "served", "s3cret") as server, passable_folder() as folder:
        own = folder / "clone"
        own.mkdir()
        accounts.hand_over(own, owner)
        code = GitCode(git=f"{server.url}/lab/.git", token="LAB")
        found = await cloning(tmp_path).clone(code, own / "code", token="s3cret", owner=owner)
        assert found == commit
        assert {Owner(p.lstat().st_uid, p.lstat().st_gid) for p in own.rglob("*")} == {owner}
        assert not (own / "credentials").exists()


async def test_unreachable_server_is_reported(tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        code = GitCode(git=f"http://127.0.0.1:{listener.getsockname()[1]}/lab")
        with pytest.raises(CloneError, match=r"unable to access|Failed to connect") as found:
            await cloning(tmp_path).clone(code, tmp_path / "code")
        assert found.value.is_passing
        # Now it takes connections and never answers.
        listener.listen()
        with pytest.raises(CloneError, match="not cloned within"):
            await cloning(tmp_path, seconds=0.3).clone(code, tmp_path / "other")


async def test_large_repository_is_refused(tmp_path: Path, repository: Repository) -> None:
    repository.commit(train="x" * 100_000)
    with pytest.raises(CloneError, match="the most that hosts clone"):
        await cloning(tmp_path, max_bytes=50_000).clone(
            GitCode(git=address(repository)), tmp_path / "code"
        )


async def test_submodules_are_cloned_on_request(tmp_path: Path, repository: Repository) -> None:
    part = Repository(tmp_path / "served" / "part")
    part.commit(model="layers")
    repository.git(
        "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", address(part), "part"
    )
    repository.commit(train="one")
    for submodules in (False, True):
        folder = tmp_path / str(submodules)
        code = GitCode(git=address(repository), submodules=submodules)
        await cloning(tmp_path).clone(code, folder)
        assert (folder / "part" / "model.py").exists() is submodules


async def test_cancelled_clone_leaves_no_process(tmp_path: Path) -> None:
    running: set[int] = set()
    variables = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    with socket.create_server(("127.0.0.1", 0)) as listener:
        code = GitCode(git=f"http://127.0.0.1:{listener.getsockname()[1]}/lab")
        clone = asyncio.ensure_future(Cloning(variables, running).clone(code, tmp_path / "code"))
        (connection, _) = await asyncio.get_running_loop().run_in_executor(None, listener.accept)
        with connection:
            clone.cancel()
            with pytest.raises(asyncio.CancelledError):
                await clone
    assert running == set()


async def test_file_addresses_need_the_agents_leave(tmp_path: Path) -> None:
    with pytest.raises(CloneError, match="--allow-file-repositories"):
        await Cloning({}, set()).clone(GitCode(git="file:///srv/lab"), tmp_path / "code")


async def test_missing_git_is_reported(tmp_path: Path) -> None:
    with pytest.raises(CloneError, match="git is not installed on this host"):
        await Cloning({"PATH": str(tmp_path)}, set()).clone(
            GitCode(git="https://x.example/a"), tmp_path / "code"
        )


@pytest.mark.parametrize(
    ("words", "message", "passes"),
    [
        (
            "git@x: Permission denied (publickey).\nfatal: Could not read from remote repository.\n"
            "\nPlease make sure you have the correct access rights\n",
            "git@x: Permission denied (publickey).; Could not read from remote repository.; ",
            False,
        ),
        (
            "ssh: Could not resolve hostname x: Name or service not known\n"
            "fatal: Could not read from remote repository.\n",
            "ssh: Could not resolve hostname x: Name or service not known; Could not read",
            True,
        ),
        ("", "git left with 128", False),
    ],
)
def test_errors_say_what_git_says(words: str, message: str, passes: bool) -> None:
    error = error_of(words, 128, has_token=False)
    assert str(error).startswith(message)
    assert error.is_passing is passes
