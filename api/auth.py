"""Authentication. There are no accounts yet: the guard admits only the operator.

Accounts come as another `Authenticator` on `app.state.authenticator`; routes stay as they are.
"""

from dataclasses import dataclass
from typing import Protocol

from starlette.requests import HTTPConnection

from trainhall.api.problems import RefusalError


@dataclass(frozen=True)
class Principal:
    """A person or a program on whose behalf a request is served."""

    name: str


OPERATOR = Principal("operator")


class Authenticator(Protocol):
    async def __call__(self, connection: HTTPConnection) -> Principal:
        """Return the principal of a request.

        Raises:
            RefusalError: the caller is not authorized.
        """


async def everyone_is_operator(connection: HTTPConnection) -> Principal:
    return OPERATOR


async def authenticated(connection: HTTPConnection) -> Principal:
    """Dependency of every public route."""
    authenticator: Authenticator = connection.app.state.authenticator
    return await authenticator(connection)


def bearer(connection: HTTPConnection) -> str:
    """Return the credential of the `Authorization` header.

    Raises:
        RefusalError: there is none.
    """
    scheme, _, credential = connection.headers.get("authorization", "").partition(" ")
    credential = credential.strip()
    if scheme.lower() != "bearer" or not credential:
        raise RefusalError(
            401, "not-authenticated",
            "the node's credential is missing: send it as `Authorization: Bearer …`",
            headers={"WWW-Authenticate": "Bearer"},
        )  # fmt: skip
    return credential
