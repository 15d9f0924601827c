"""/projects/…/secrets and /users/me/secrets: what jobs get as environment variables."""

from typing import Annotated

from fastapi import Path, Request
from pydantic import AfterValidator

from trainhall.api.bodies import read_json
from trainhall.api.login.services import ServicesDep
from trainhall.api.openapi.describe import Operations, body
from trainhall.api.params import Cursor, Limit, checked_reference
from trainhall.api.problems import RefusalError, invalid
from trainhall.api.routes.people.params import NO_PROJECT, NOT_MAINTAINER, ProjectName
from trainhall.api.schemas.accounts import NewSecret
from trainhall.cluster.secrets.views import SecretPage
from trainhall.training.spec.variables.secrets import MAX_NAME

router = Operations(tags=["projects"])
_BODY_BYTES = 256 * 1024
"""Limit of a body: JSON may take six bytes for one."""
_BODY = body(NewSecret, {"token": {"value": "hf_…"}}, required=True)
_BAD_NAME = invalid(
    "name", "TRAINHALL_URL",
    "is reserved: ranks get this variable from their host; use another name",
)  # fmt: skip
_NO_KEY = RefusalError(
    409, "conflict",
    "the key of the stored secrets, /var/lib/trainhall/secrets.key on the coordinator, is missing: "
    "put it back from a backup, or name its file by TRAINHALL_SECRETS_KEY_FILE",
)  # fmt: skip
_NO_SECRET = RefusalError(404, "not-found", "there is no secret 'HF_TOKEN'")
_NARROWED = RefusalError(
    403, "not-allowed",
    "a narrowed token may not change the secrets of its user; log in, or use a whole token",
)  # fmt: skip


def _checked(name: str) -> str:
    checked_reference("secret", name)
    return name


SecretName = Annotated[
    str,
    Path(
        min_length=1,
        max_length=MAX_NAME,
        description="Name of the secret: of the environment variable that ranks get.",
        examples=["HF_TOKEN"],
    ),
    AfterValidator(_checked),
]


@router.operation(
    "GET", "/projects/{name}/secrets", NO_PROJECT,
    summary="List the secrets of a project", answer="A page of secrets.",
)  # fmt: skip
async def list_project_secrets(
    services: ServicesDep, name: ProjectName, limit: Limit = 50, cursor: Cursor = None
) -> SecretPage:
    """By name, without their values. For members."""
    return await services.secrets.list(name, limit=limit, cursor=cursor)


@router.operation(
    "PUT", "/projects/{name}/secrets/{secret}", NOT_MAINTAINER, NO_PROJECT, _BAD_NAME, _NO_KEY,
    summary="Set a secret of a project", status=204, reads=_BODY,
)  # fmt: skip
async def set_project_secret(
    services: ServicesDep, name: ProjectName, secret: SecretName, request: Request
) -> None:
    """Sets its value, in place of the one that it has. Jobs of the project whose spec names it get
    it as an environment variable, so all who may submit there can read it by a job."""
    wanted = await read_json(request, NewSecret, _BODY_BYTES, hidden=True)
    await services.secrets.set(name, secret, wanted.value)


@router.operation(
    "DELETE", "/projects/{name}/secrets/{secret}", NOT_MAINTAINER, NO_PROJECT,
    summary="Remove a secret of a project", status=204,
)  # fmt: skip
async def remove_project_secret(
    services: ServicesDep, name: ProjectName, secret: SecretName
) -> None:
    """Jobs that run keep it; jobs that need it and start later fail."""
    await services.secrets.remove(name, secret)


@router.operation(
    "GET", "/users/me/secrets", _NARROWED, summary="List your secrets",
    answer="A page of secrets.",
)  # fmt: skip
async def list_own_secrets(
    services: ServicesDep, limit: Limit = 50, cursor: Cursor = None
) -> SecretPage:
    """By name, without their values."""
    return await services.secrets.list(None, limit=limit, cursor=cursor)


@router.operation(
    "PUT", "/users/me/secrets/{secret}", _NARROWED, _NO_SECRET, _BAD_NAME, _NO_KEY,
    summary="Set a secret of yours", status=204, reads=_BODY,
)  # fmt: skip
async def set_own_secret(services: ServicesDep, secret: SecretName, request: Request) -> None:
    """Sets its value, in place of the one that it has. Your jobs whose spec names it get it, in
    every project, and not the project's secret of the same name."""
    wanted = await read_json(request, NewSecret, _BODY_BYTES, hidden=True)
    await services.secrets.set(None, secret, wanted.value)


@router.operation(
    "DELETE", "/users/me/secrets/{secret}", _NARROWED, _NO_SECRET,
    summary="Remove a secret of yours", status=204,
)  # fmt: skip
async def remove_own_secret(services: ServicesDep, secret: SecretName) -> None:
    """Jobs that run keep it; jobs that need it and start later fail."""
    await services.secrets.remove(None, secret)
