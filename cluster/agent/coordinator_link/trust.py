"""Trust of an agent in its coordinator: one TLS context, for all of its connections.

The join token's fingerprint counts before the token's secret is sent, and what has it is kept
beside the credential. From then on nothing else is trusted, whatever public authorities say.
"""

import asyncio
import ssl

import httpx

from trainhall.cluster.agent.options import (
    AgentError,
    AgentOptions,
    OptionError,
    UntrustedCoordinatorError,
)
from trainhall.cluster.backoff import Backoff
from trainhall.cluster.tls import (
    Anchor,
    UntrustedError,
    checked_fingerprint,
    describe_refusal,
    fetch_anchor,
    find_anchor,
    is_https,
    own_anchor,
    tls_context,
    trust,
)
from trainhall.cluster.wire.join_token import JoinToken
from trainhall.training.event_log import EventLogger

logger = EventLogger(__name__)


class Trust:
    def __init__(self, options: AgentOptions, kept: Anchor | None = None) -> None:
        """Find out what is to be trusted; `establish` may have to ask the coordinator for it.

        Args:
            kept: what the node pinned when it joined this coordinator.

        Raises:
            AgentError: an option cannot be used.
        """
        self._options = options
        self._url = options.coordinator
        self._kept = kept
        self._anchor: Anchor | None = None
        self._own_read: object = None
        self._pin = self._token_pin()
        self.replaces_kept = False
        """True if the token names another certificate than the node has kept: it joins again."""
        if options.tls_own is not None or options.tls_ca is not None:
            self._pin = self._kept = None  # what a user names counts alone
        self._is_anchored = is_https(self._url) and any(
            (options.tls_own, options.tls_ca, self._pin, self._kept)
        )
        self.context = (
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # which trusts nobody
            if self._is_anchored
            else tls_context(self._url)
        )

    def _token_pin(self) -> str | None:
        token = JoinToken.parse(self._options.token or "")
        if token.fingerprint is None:
            return None
        if not is_https(self._url):
            raise OptionError(
                "the join token names the coordinator's certificate, but --coordinator "
                f"{self._url} would send it without TLS; use https://"
            )
        try:
            return checked_fingerprint(token.fingerprint)
        except UntrustedError as error:
            raise OptionError(f"the join token is damaged: {error}") from None

    @property
    def pinned(self) -> Anchor | None:
        """Return what to keep beside the credential."""
        return self._kept

    @property
    def fingerprint(self) -> str | None:
        """Return what commands verify the coordinator with, as `TRAINHALL_TLS_CA`; None: what is
        trusted anyway."""
        return f"sha256:{self._anchor.fingerprint}" if self._anchor is not None else None

    async def establish(self) -> None:
        """Trust what is to be trusted, for which the coordinator may have to answer first.

        Raises:
            UntrustedCoordinatorError: its certificate is not what was pinned.
            AgentError: a file cannot be used.
        """
        if not self._is_anchored or self._anchor is not None:
            return
        if self._options.tls_own is not None:
            self.refresh()
            return
        is_same = self._kept is not None and self._pin in (None, self._kept.fingerprint)
        found = self._kept if is_same else None
        if found is None:
            try:
                found = await self._ask()
            except UntrustedError as error:
                if self._kept is None:
                    raise UntrustedCoordinatorError(str(error)) from None
                # An old token that was left where the agent is started.
                logger.warning("token_not_trusted", error=error, action="use what was pinned")
                found = self._kept
            else:
                self.replaces_kept = self._kept is not None
        if self._options.tls_ca is None:
            self._kept = found
        self._use(found)

    async def _ask(self) -> Anchor:
        backoff, failed = Backoff(0.1, self._options.reconnect_limit_seconds), False
        while True:
            try:
                if self._pin is not None:
                    return await asyncio.to_thread(fetch_anchor, self._url, self._pin)
                assert self._options.tls_ca is not None
                return await asyncio.to_thread(find_anchor, self._url, self._options.tls_ca)
            except httpx.TransportError as error:
                if not failed:
                    logger.warning(
                        "coordinator_unreachable", coordinator=self._url, error=self.describe(error)
                    )
                failed = True
            await asyncio.sleep(backoff.next())

    def refresh(self) -> None:
        """Trust the coordinator's own certificate, where its file is known, as it is now.

        Raises:
            AgentError: the file cannot be used.
        """
        path = self._options.tls_own
        if path is None or not self._is_anchored:
            return
        try:
            stat = path.stat()
            if (stat.st_mtime_ns, stat.st_ino) == self._own_read:
                return
            self._use(own_anchor(path))
        except (OSError, ValueError) as error:
            if self._own_read is not None:
                return  # it is being replaced
            raise AgentError(f"--tls-own {path} cannot be used: {error}") from None
        self._own_read = (stat.st_mtime_ns, stat.st_ino)

    def _use(self, anchor: Anchor) -> None:
        trust(self.context, anchor)
        self._anchor = anchor

    def describe(self, error: Exception) -> str:
        """Return the message of a failed connection, or its kind where it has none."""
        refusal = describe_refusal(error, self._url, self._anchor)
        return refusal or str(error) or type(error).__name__
