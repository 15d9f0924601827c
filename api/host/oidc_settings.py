"""Settings of the login by an OpenID provider: the table `[server.oidc]`, or `TRAINHALL_OIDC_…`."""

from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from trainhall.cluster.accounts.rules import Rule
from trainhall.documented import Documented

Text = Annotated[str, Field(min_length=1, max_length=1024)]
MAX_SECRET = 4096


class OidcSettings(Documented, BaseModel):
    """An OpenID provider, and what its groups may do."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    issuer: Text
    """The provider's issuer, such as `https://login.lab.example/realms/lab`."""
    client_id: Text
    """Under which the provider knows this coordinator."""
    client_secret_file: Path | None = None
    """File with the client's secret; none for a public client."""
    name: Annotated[str, Field(max_length=64)] = ""
    """Name of the provider on the login page; else the host of its issuer."""
    scopes: tuple[Text, ...] = ("openid", "profile")
    """Scopes to request; many providers send groups for one more scope, such as `groups`."""
    groups_claim: Text = "groups"
    """Claim with a user's groups: a list of names."""
    name_claim: Text = "preferred_username"
    """Claim with a user's name."""
    rules: tuple[Rule, ...] = ()
    """Rights by group. Without a rule a user has none."""

    @model_validator(mode="before")
    @classmethod
    def _undashed(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {str(key).replace("-", "_"): item for key, item in value.items()}

    @field_validator("issuer")
    @classmethod
    def _is_safe(cls, value: str) -> str:
        parts = urlsplit(value)
        is_here = parts.hostname in ("localhost", "127.0.0.1", "::1")
        if not parts.hostname or parts.scheme not in (("https", "http") if is_here else ("https",)):
            raise ValueError("must be an https:// URL, such as https://login.lab.example")
        return value

    @field_validator("scopes")
    @classmethod
    def _has_openid(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return value if "openid" in value else ("openid", *value)

    @field_validator("client_secret_file")
    @classmethod
    def _is_readable(cls, value: Path | None) -> Path | None:
        if value is not None:
            _read(value.expanduser())
            return value.expanduser().absolute()
        return None

    @property
    def shown_name(self) -> str:
        """Name of the provider, as the login page shows it."""
        return self.name or urlsplit(self.issuer).hostname or self.issuer

    def client_secret(self) -> str | None:
        """Return the client's secret.

        Raises:
            ValueError: the file cannot be read any longer.
        """
        return _read(self.client_secret_file) if self.client_secret_file is not None else None


def _read(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8")[:MAX_SECRET].strip()
    except (OSError, UnicodeDecodeError) as error:
        cause = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ValueError(f"{path} cannot be read: {cause}") from None
    if not text:
        raise ValueError(f"{path} is empty")
    return text
