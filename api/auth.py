"""Authentication of nodes. There are no accounts of users: the guard admits only the operator."""

from starlette.requests import HTTPConnection

from trainhall.api.problems import RefusalError


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
