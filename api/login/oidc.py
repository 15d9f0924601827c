"""An OpenID provider, by Authlib: authorization code flow with PKCE, state and nonce.

Only a coordinator with a provider imports it. Authlib keeps what is under way in Starlette's
session; here the routes keep it, so its client is used without that.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import structlog
from authlib.integrations.starlette_client import OAuth, OAuthError, StarletteOAuth2App
from authlib.oidc.core import CodeIDToken
from joserfc.errors import BadSignatureError, ClaimError, JoseError

from trainhall.api.host.oidc_settings import OidcSettings
from trainhall.api.login.provider import NotAcceptedError, Pending, ProviderAwayError
from trainhall.cluster.accounts.provider import Identity

log = structlog.get_logger(__name__)

TIMEOUT_SECONDS = 10.0
METADATA_SECONDS = 3600.0
"""The provider's description of itself is asked for again after so long."""
AWAY_SECONDS = 2.0
"""After a failure the provider is left alone for so long."""
LEEWAY_SECONDS = 120
"""Difference of the clocks that is forgiven."""
_TIMES = frozenset({"exp", "iat", "nbf"})
"""Claims that are times."""
MAX_GROUPS = 10_000
_ALGORITHMS = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
)
"""Signatures by a key of the provider's alone: neither none, nor one by a shared secret."""


class OpenIdProvider:
    """One provider, asked for its keys and its endpoints when they are first needed."""

    def __init__(self, settings: OidcSettings) -> None:
        self._settings = settings
        self._lock = asyncio.Lock()
        self._known: StarletteOAuth2App | None = None
        self._known_since = 0.0
        self._away: tuple[float, ProviderAwayError] | None = None

    @property
    def name(self) -> str:
        return self._settings.shown_name

    async def begin(self, redirect_uri: str, path: str) -> tuple[str, Pending]:
        async with _explained():
            made = await (await self._client()).create_authorization_url(redirect_uri)
        pending = Pending(
            state=made["state"],
            nonce=made["nonce"],
            verifier=made["code_verifier"],
            path=path,
            since=time.time(),
        )
        return made["url"], pending

    async def finish(self, pending: Pending, code: str, redirect_uri: str) -> Identity:
        async with _explained():
            client = await self._client()
            token = await client.fetch_access_token(
                redirect_uri=redirect_uri, code=code, code_verifier=pending.verifier
            )
            claims = await self._verified(client, token, pending.nonce)
            missing = {self._settings.groups_claim, self._settings.name_claim} - claims.keys()
            if missing and "userinfo_endpoint" in client.server_metadata:
                info = await client.userinfo(token=token)
                if info.get("sub") != claims["sub"]:
                    raise NotAcceptedError("the provider described somebody else")
                claims = {**info, **claims}
        return Identity(
            issuer=self._settings.issuer,
            subject=claims["sub"] if isinstance(claims["sub"], str) else "",
            name=_name(claims, self._settings.name_claim),
            groups=_groups(claims.get(self._settings.groups_claim)),
        )

    async def _client(self) -> StarletteOAuth2App:
        """Return the client, which knows the provider's endpoints."""
        async with self._lock:
            age = time.monotonic() - self._known_since
            if self._known is None or age > METADATA_SECONDS:
                # Whoever waited for the same failure does not wait for another one.
                if self._away is not None and time.monotonic() < self._away[0]:
                    raise self._away[1]
                try:
                    async with _explained():
                        self._known = await self._discovered()
                except ProviderAwayError as error:
                    self._away = (time.monotonic() + AWAY_SECONDS, error)
                    raise
                self._known_since = time.monotonic()
            return self._known

    async def _discovered(self) -> StarletteOAuth2App:
        base = self._settings.issuer.rstrip("/")
        client: StarletteOAuth2App = OAuth().register(
            "oidc",
            client_id=self._settings.client_id,
            client_secret=self._settings.client_secret(),
            server_metadata_url=f"{base}/.well-known/openid-configuration",
            client_kwargs={
                "scope": " ".join(self._settings.scopes),
                "code_challenge_method": "S256",
                "timeout": TIMEOUT_SECONDS,
                # Authlib makes an HTTP client for each request, and each would read the
                # certificates of all authorities: 25 ms in which nobody else is served.
                "verify": httpx2.create_ssl_context(),
            },
        )
        metadata = await client.load_server_metadata()
        if metadata.get("issuer") != self._settings.issuer:
            raise NotAcceptedError(
                f"the provider calls itself {metadata.get('issuer')!r}, and not "
                f"{self._settings.issuer!r} as in the settings"
            )
        client.client_kwargs["token_endpoint_auth_method"] = self._authentication(metadata)
        offered = metadata.get("id_token_signing_alg_values_supported") or ["RS256"]
        allowed = [name for name in offered if name in _ALGORITHMS]
        metadata["id_token_signing_alg_values_supported"] = allowed or ["RS256"]
        return client

    def _authentication(self, metadata: Mapping[str, Any]) -> str:
        """Return how this client shows its secret."""
        if self._settings.client_secret_file is None:
            return "none"
        offered = metadata.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
        return "client_secret_basic" if "client_secret_basic" in offered else "client_secret_post"

    async def _verified(
        self, client: StarletteOAuth2App, token: Mapping[str, Any], nonce: str
    ) -> dict[str, Any]:
        """Return the claims of the ID token. Keys are asked for again, once, if none fits."""
        if not token.get("id_token"):
            raise NotAcceptedError("the provider sent no ID token; is the scope openid allowed?")
        try:
            claims = await self._parsed(client, token, nonce)
        except BadSignatureError:  # a new key without an id
            await client.fetch_jwk_set(force=True)
            claims = await self._parsed(client, token, nonce)
        return dict(claims)

    async def _parsed(
        self, client: StarletteOAuth2App, token: Mapping[str, Any], nonce: str
    ) -> dict[str, Any]:
        options = {
            "iss": {"essential": True, "value": self._settings.issuer},
            "aud": {"essential": True, "value": self._settings.client_id},
        }
        parsed: dict[str, Any] = await client.parse_id_token(
            token,
            nonce=nonce,
            claims_options=options,
            claims_cls=CodeIDToken,
            leeway=LEEWAY_SECONDS,
        )
        return parsed


@asynccontextmanager
async def _explained() -> AsyncIterator[None]:
    """Turn what Authlib and its client raise into the errors of `provider`."""
    try:
        yield
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        log.warning("oidc_provider_away", error=str(error) or type(error).__name__)
        raise ProviderAwayError(str(error) or type(error).__name__) from error
    except OAuthError as error:
        log.warning("oidc_refused", error=error.error, description=error.description)
        raise NotAcceptedError(error.description or error.error or "it gave no reason") from error
    except JoseError as error:
        log.warning("oidc_token_invalid", error=str(error))
        why = f"its ID token is not valid: {error}"
        if isinstance(error, ClaimError) and error.claim in _TIMES:
            why += (
                "; compare the clocks of the coordinator and the provider, which may differ by "
                f"{LEEWAY_SECONDS // 60} minutes"
            )
        raise NotAcceptedError(why) from error
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        # Answers that are no JSON, or lack what they must have.
        log.warning("oidc_provider_answers_wrongly", error=str(error), exc_info=error)
        raise ProviderAwayError("it answers, but not as an OpenID provider") from error


def _name(claims: Mapping[str, Any], claim: str) -> str:
    for key in (claim, "preferred_username", "name"):
        value = claims.get(key)
        if isinstance(value, str) and value.strip():
            return value
    return ""


def _groups(value: object) -> frozenset[str]:
    if isinstance(value, str):
        return frozenset({value})
    if not isinstance(value, list):
        return frozenset()
    return frozenset(each for each in value[:MAX_GROUPS] if isinstance(each, str))
