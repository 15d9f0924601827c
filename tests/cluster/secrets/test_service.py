"""Secrets: who may set them, which of them a job gets, and what is stored of them."""

import base64
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import select, text, update
from support.access.users import MARIA, OTTO
from support.storage.frames import revoke

from trainhall.cluster.access.principal import Principal
from trainhall.cluster.errors import (
    ConflictError,
    ForbiddenError,
    InvalidValueError,
    NotFoundError,
)
from trainhall.cluster.options import ClusterOptions
from trainhall.cluster.secrets.service import MAX_VALUE_BYTES, SecretService
from trainhall.cluster.secrets.stored import check_secrets
from trainhall.cluster.service import ServiceContext
from trainhall.db.accounts import AuditEntry, Secret
from trainhall.db.database import Database
from trainhall.db.models import Job
from trainhall.training.spec import SpecError
from trainhall.training.spec.parse import validate_spec
from trainhall.training.spec.source.git_code import GitCode

VALUE = "hf_canary1234567"


async def put(secrets: SecretService, who: Principal, project: str | None, **values: str) -> None:
    for name, value in values.items():
        await secrets.limited_to(who).set(project, name, value)


async def test_users_secret_wins_over_the_projects(secrets: SecretService, job: str) -> None:
    await put(secrets, MARIA, "vision", HF_TOKEN="of the project", KEY="key of the project")
    await put(secrets, MARIA, None, HF_TOKEN="maria's")
    assert await secrets.of_attempt(job, 1) == {
        "HF_TOKEN": "of the project", "KEY": "key of the project",
    }  # fmt: skip
    await put(secrets, OTTO, None, HF_TOKEN="first", OTHER="not asked for")
    await put(secrets, OTTO, None, HF_TOKEN="otto's")
    assert (await secrets.of_attempt(job, 1))["HF_TOKEN"] == "otto's"


async def test_hosts_get_the_token_of_code_in_git(
    secrets: SecretService, database: Database, job: str
) -> None:
    await put(secrets, MARIA, "vision", GIT=VALUE, KEY="x")
    spec = {"secrets": ["KEY"], "code": {"git": "https://git.example/lab", "token": "GIT"}}
    async with database.transaction() as session:
        await session.execute(update(Job).where(Job.id == job).values(spec=spec))
    assert await secrets.of_attempt(job, 1) == {"GIT": VALUE, "KEY": "x"}


async def test_removed_secret_refuses_the_launch(secrets: SecretService, job: str) -> None:
    await put(secrets, MARIA, "vision", HF_TOKEN=VALUE, KEY="x")
    await secrets.limited_to(MARIA).remove("vision", "KEY")
    with pytest.raises(ConflictError, match="secret KEY is set neither for project vision") as why:
        await secrets.of_attempt(job, 1)
    assert "`trainhall secrets set KEY --project vision`" in why.value.message
    assert VALUE not in why.value.message
    with pytest.raises(NotFoundError):
        await secrets.limited_to(MARIA).remove("vision", "KEY")


async def test_fenced_attempt_gets_nothing(
    secrets: SecretService, database: Database, job: str
) -> None:
    await put(secrets, MARIA, "vision", HF_TOKEN=VALUE, KEY="x")
    await revoke(database)
    with pytest.raises(ConflictError, match="attempt 1 of job job is over"):
        await secrets.of_attempt(job, 1)
    with pytest.raises(NotFoundError):
        await secrets.of_attempt(job, 2)


async def test_submission_names_what_is_not_set(secrets: SecretService, database: Database) -> None:
    await put(secrets, MARIA, "vision", HF_TOKEN=VALUE)
    spec = validate_spec(
        {
            "name": "x", "script": {"path": "/x"}, "secrets": ["HF_TOKEN", "KEY", "OTHER"],
            "project": "vision", "user": "otto",
        }
    )  # fmt: skip
    code = {"git": "https://git.example/lab", "token": "GIT"}
    cloned = spec.model_copy(update={"code": GitCode.model_validate(code)})
    async with database.session() as session:
        for asked, fields in (
            (spec, ["secrets.1", "secrets.2"]),
            (cloned, ["secrets.1", "secrets.2", "code.token"]),
        ):
            with pytest.raises(SpecError) as refused:
                await check_secrets(session, asked)
            assert [each.field for each in refused.value.problems] == fields
    await put(secrets, MARIA, "vision", KEY="x")
    await put(secrets, OTTO, None, OTHER="x")
    async with database.session() as session:
        await check_secrets(session, spec)


async def test_rights_are_the_roles(secrets: SecretService) -> None:
    await put(secrets, MARIA, "vision", HF_TOKEN=VALUE)
    listed = (await secrets.limited_to(OTTO).list("vision")).items
    assert [(each.name, each.updated_by) for each in listed] == [("HF_TOKEN", "maria")]
    with pytest.raises(ForbiddenError, match="takes the role maintainer"):
        await put(secrets, OTTO, "vision", KEY="x")
    with pytest.raises(NotFoundError):
        await put(secrets, OTTO, "speech", KEY="x")
    narrowed = replace(OTTO, is_narrowed=True)
    for change in (narrowed, replace(OTTO, user_id="")):
        with pytest.raises((ForbiddenError, ConflictError)):
            await put(secrets, change, None, KEY="x")
    with pytest.raises(ForbiddenError, match="narrowed token"):
        await secrets.limited_to(narrowed).list(None)
    assert (await secrets.limited_to(OTTO).list(None)).items == []


@pytest.mark.parametrize("value", ["", "a\0b", "é" * (MAX_VALUE_BYTES // 2 + 1), "\ud800"])
async def test_bad_values_are_refused_without_being_shown(
    secrets: SecretService, value: str
) -> None:
    with pytest.raises(InvalidValueError) as refused:
        await put(secrets, MARIA, "vision", KEY=value)
    assert refused.value.value is None


async def test_nothing_stored_or_audited_has_the_value(
    secrets: SecretService, database: Database, tmp_path: Path
) -> None:
    await put(secrets, MARIA, "vision", HF_TOKEN=VALUE)
    await secrets.limited_to(MARIA).remove("vision", "HF_TOKEN")
    await put(secrets, MARIA, "vision", HF_TOKEN=VALUE)
    async with database.session() as session:
        (row,) = (await session.scalars(select(Secret))).all()
        audited = (await session.scalars(select(AuditEntry).order_by(AuditEntry.id))).all()
    assert [each.action for each in audited] == ["secret.set", "secret.remove", "secret.set"]
    assert {(each.user, each.object, each.project) for each in audited} == {
        ("maria", "HF_TOKEN", "vision")
    }
    assert VALUE not in str([vars(each) for each in (row, *audited)])
    key = (tmp_path / "secrets.key").read_bytes().strip()
    assert (tmp_path / "secrets.key").stat().st_mode & 0o777 == 0o600
    assert base64.urlsafe_b64decode(key) not in row.sealed
    assert base64.urlsafe_b64decode(key).hex() != row.key_id


async def test_key_is_never_replaced_under_secrets(
    secrets: SecretService, job: str, tmp_path: Path
) -> None:
    await put(secrets, MARIA, "vision", HF_TOKEN=VALUE, KEY="x")
    file = tmp_path / "secrets.key"
    kept = file.read_bytes()
    file.unlink()
    for attempt in (put(secrets, MARIA, "vision", KEY="y"), secrets.of_attempt(job, 1)):
        with pytest.raises(ConflictError, match=r"secrets.key on the coordinator, is missing"):
            await attempt
    assert not file.exists()
    file.write_text("no key\n")
    with pytest.raises(ConflictError, match="is no key of secrets"):
        await secrets.of_attempt(job, 1)
    file.write_bytes(base64.b64encode(b"\xff" * 32))
    for attempt in (put(secrets, MARIA, "vision", KEY="y"), secrets.of_attempt(job, 1)):
        with pytest.raises(ConflictError, match="is not the one that"):
            await attempt
    file.write_bytes(kept)
    assert (await secrets.of_attempt(job, 1))["HF_TOKEN"] == VALUE


async def test_key_file_of_the_settings_is_not_made(
    context: ServiceContext, secrets: SecretService, tmp_path: Path
) -> None:
    file = tmp_path / "mounted"
    named = replace(context, options=ClusterOptions(secrets_key_file=file))
    service = SecretService(named, tmp_path)
    with pytest.raises(ConflictError, match="mounted on the coordinator, is missing; make one"):
        await put(service, MARIA, "vision", KEY="x")
    file.write_bytes(base64.b64encode(b"\xff" * 32))
    await put(service, MARIA, "vision", KEY="x")
    assert not (tmp_path / "secrets.key").exists()


async def test_value_that_was_moved_is_not_read(
    secrets: SecretService, database: Database, job: str
) -> None:
    await put(secrets, MARIA, "vision", HF_TOKEN=VALUE, KEY="x")
    async with database.transaction() as session:
        sealed = await session.scalar(select(Secret.sealed).where(Secret.name == "HF_TOKEN"))
        await session.execute(update(Secret).where(Secret.name == "KEY").values(sealed=sealed))
    with pytest.raises(ConflictError, match="stored value of secret KEY is damaged"):
        await secrets.of_attempt(job, 1)


async def test_secrets_go_with_their_project(secrets: SecretService, database: Database) -> None:
    await put(secrets, MARIA, "vision", KEY="x")
    async with database.transaction() as session:
        await session.execute(text("DELETE FROM projects WHERE name = 'vision'"))
    async with database.session() as session:
        assert (await session.scalars(select(Secret))).all() == []
