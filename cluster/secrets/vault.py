"""Encryption of secrets, by a key in a file of its own: who has the database alone has no value."""

import base64
import binascii
import hashlib
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from trainhall.cluster.errors import ConflictError
from trainhall.db.accounts import Secret

KEY_BYTES = 32
_NONCE_BYTES = 12
_STANDARD = bytes.maketrans(b"-_", b"+/")
"""Both alphabets of base64 are read."""
VARIABLE = "TRAINHALL_SECRETS_KEY_FILE"
_MAKE = "`head -c 32 /dev/urandom | base64 > FILE`"


@dataclass(frozen=True)
class Key:
    data: bytes

    @property
    def id(self) -> str:
        """Return what tells keys apart; nothing of the key follows from it."""
        return hashlib.sha256(self.data).hexdigest()[:16]


class Vault:
    """The key, which is read for each use, so that one that was put back counts at once.

    Args:
        path: file with 32 bytes in base64.
        may_create: make the file if nothing was encrypted yet: it is the default one.
    """

    def __init__(self, path: Path, *, may_create: bool) -> None:
        self._path = path
        self._may_create = may_create

    def key(self) -> Key:
        """Read the key.

        Raises:
            ConflictError: there is none, or the file holds something else.
        """
        try:
            text = self._path.read_bytes()
        except FileNotFoundError:
            raise ConflictError(
                f"the key of the stored secrets, {self._path} on the coordinator, is missing: put "
                f"it back from a backup, or name its file by {VARIABLE}"
            ) from None
        except OSError as error:
            raise ConflictError(
                f"the key of the stored secrets, {self._path} on the coordinator, cannot be read: "
                f"{error.strerror}"
            ) from None
        try:
            data = base64.b64decode(text.strip().translate(_STANDARD), validate=True)
        except binascii.Error:
            data = b""
        if len(data) != KEY_BYTES:
            raise ConflictError(
                f"{self._path} on the coordinator is no key of secrets: it must hold {KEY_BYTES} "
                f"bytes in base64, as of {_MAKE}"
            )
        return Key(data)

    def first_key(self) -> Key:
        """Return the key for the first secret; make it if need be.

        Raises:
            ConflictError: as `key`; a file that the settings name is not made.
        """
        if self._path.exists():
            return self.key()
        if not self._may_create:
            raise ConflictError(
                f"the key for secrets, {self._path} on the coordinator, is missing; make one with "
                f"{_MAKE}, and keep it readable for the coordinator alone"
            )
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(fd, "wb") as file:
            file.write(base64.urlsafe_b64encode(secrets.token_bytes(KEY_BYTES)) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._path)
        return self.key()

    def check(self, key: Key, key_id: str) -> None:
        """Check that a stored secret was encrypted with this key.

        Raises:
            ConflictError: it was not.
        """
        if key.id != key_id:
            raise ConflictError(
                f"the key in {self._path} on the coordinator is not the one that the stored "
                f"secrets were encrypted with: put that one back, or name its file by {VARIABLE}"
            )

    def seal(self, key: Key, row: Secret, value: str) -> None:
        """Put an encrypted value into a row, whose owner and name are bound to it."""
        # Imported when the first secret is used: it is 10 MB.
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce = secrets.token_bytes(_NONCE_BYTES)
        row.sealed = nonce + AESGCM(key.data).encrypt(nonce, value.encode(), _bound(row))
        row.key_id = key.id

    def open(self, key: Key, row: Secret) -> str:
        """Return the value of a row.

        Raises:
            ConflictError: the key is another one, or the row was changed from outside.
        """
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self.check(key, row.key_id)
        nonce, data = row.sealed[:_NONCE_BYTES], row.sealed[_NONCE_BYTES:]
        try:
            return AESGCM(key.data).decrypt(nonce, data, _bound(row)).decode()
        except InvalidTag:
            raise ConflictError(
                f"the stored value of secret {row.name} is damaged; set it again"
            ) from None


def _bound(row: Secret) -> bytes:
    """Return what a value is bound to, so that it cannot be moved to another row."""
    kind, owner = ("project", row.project) if row.project is not None else ("user", row.user_id)
    return f"{kind}\0{owner}\0{row.name}".encode()
