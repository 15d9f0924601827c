"""Logins of the command line that a browser approves, by a page on the same host or by a code.

They live for minutes, in memory alone: whoever restarts the coordinator begins again.
"""

import base64
import hashlib
import math
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from trainhall.api.limits import too_many
from trainhall.cluster.access.networks import network_of
from trainhall.cluster.access.principal import Principal
from trainhall.cluster.accounts.secrets import sha256
from trainhall.cluster.errors import NotAllowedError, NotFoundError

DEVICE_SECONDS = 600
INTERVAL_SECONDS = 5
BROWSER_SECONDS = 60.0
MAX_PENDING = 1000
MAX_PENDING_OF_ONE = 20
"""Logins of one network, or approved by one user."""
_ALPHABET = "BCDFGHJKLMNPQRSTVWXZ"
"""Neither vowels, which make words, nor digits, which look like letters."""
_HALF = 4

State = Literal["pending", "approved", "denied"]


@dataclass
class Device:
    """A login that waits for a browser."""

    user_code: str
    client: str
    address: str
    created_at: datetime
    ends: float
    polled: float = float("-inf")
    state: State = "pending"
    approved_by: Principal | None = None


@dataclass(frozen=True)
class _Code:
    challenge: str
    principal: Principal
    ends: float


@dataclass
class CommandLogins:
    """All logins of commands that are under way."""

    now: Callable[[], float] = time.monotonic
    interval: int = INTERVAL_SECONDS
    """Seconds between two requests of the same commands."""
    _devices: dict[str, Device] = field(default_factory=dict)
    """By the hash of the device code."""
    _codes: dict[str, _Code] = field(default_factory=dict)
    """By the hash of the code."""

    def begin(self, client: str, address: str) -> tuple[str, Device]:
        """Begin a login by code; return the secret of the commands.

        Raises:
            RefusalError: 429, too many are under way.
        """
        self._forget()
        network = network_of(address)
        here = sum(network_of(each.address) == network for each in self._devices.values())
        if here >= MAX_PENDING_OF_ONE or len(self._devices) >= MAX_PENDING:
            raise too_many(
                "too many logins wait to be approved; try again in a minute", retry_seconds=60
            )
        device_code = secrets.token_urlsafe(32)
        known = {each.user_code for each in self._devices.values()}
        while (user_code := _user_code()) in known:
            pass
        ends = self.now() + DEVICE_SECONDS
        device = Device(user_code, client, address, datetime.now(UTC), ends)
        self._devices[sha256(device_code)] = device
        return device_code, device

    def poll(self, device_code: str) -> Device:
        """Return a login to its commands; one that was decided is then forgotten.

        Raises:
            NotFoundError: there is none of this code, or it has ended.
            RefusalError: 429, they ask too often.
        """
        self._forget()
        key = sha256(device_code)
        device = self._devices.get(key)
        if device is None:
            raise NotFoundError("login", "of this code: it has ended, or was never begun")
        wait = device.polled + self.interval - self.now()
        # A little early is no haste.
        if wait > 0.5:
            raise too_many(f"ask every {self.interval} s", retry_seconds=math.ceil(wait))
        device.polled = self.now()
        if device.state != "pending":
            del self._devices[key]
        return device

    def find(self, user_code: str) -> Device:
        """Return the login that waits under a code that a user typed.

        Raises:
            NotFoundError: none does.
        """
        self._forget()
        typed = "".join(char for char in user_code.upper() if char.isalpha())
        for device in self._devices.values():
            if device.user_code.replace("-", "") == typed and device.state == "pending":
                return device
        raise NotFoundError("login", f"{user_code[:16]!r} that waits; the code may have ended")

    def decide(self, user_code: str, principal: Principal | None) -> None:
        """Approve a login as a user; None: refuse it.

        Raises:
            NotFoundError: none waits under this code.
        """
        device = self.find(user_code)
        device.state = "denied" if principal is None else "approved"
        device.approved_by = principal

    def new_code(self, principal: Principal, challenge: str) -> str:
        """Return a code for the commands that know the verifier of a challenge.

        Raises:
            RefusalError: 429, too many are under way.
        """
        self._forget()
        own = sum(each.principal.user_id == principal.user_id for each in self._codes.values())
        if own >= MAX_PENDING_OF_ONE or len(self._codes) >= MAX_PENDING:
            raise too_many("too many logins are under way", retry_seconds=60)
        code = secrets.token_urlsafe(32)
        self._codes[sha256(code)] = _Code(challenge, principal, self.now() + BROWSER_SECONDS)
        return code

    def trade(self, code: str, verifier: str) -> Principal:
        """Return who approved the login of a code, which is void from then on.

        Raises:
            NotAllowedError: the code was used, has ended, or is for other commands.
        """
        self._forget()
        found = self._codes.pop(sha256(code), None)
        if found is None or not secrets.compare_digest(found.challenge, challenge_of(verifier)):
            raise NotAllowedError("the code was used before, has expired, or is for another login")
        return found.principal

    def _forget(self) -> None:
        now = self.now()
        for kept in (self._devices, self._codes):
            for key in [key for key, each in kept.items() if each.ends <= now]:
                del kept[key]


def challenge_of(verifier: str) -> str:
    """Return the challenge for a verifier, as PKCE has it."""
    digest = hashlib.sha256(verifier.encode("utf-8", "surrogatepass")).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _user_code() -> str:
    halves = ("".join(secrets.choice(_ALPHABET) for _ in range(_HALF)) for _ in range(2))
    return "-".join(halves)
