"""Names of output files as text that survives any file name.

A name is a path relative to the job's folder, with `/` between its parts, in UTF-8. A backslash
stands before what a line of text cannot hold: `\\xNN` is one byte (of a name that is not UTF-8, of
a control character such as a newline, of a line separator or of a character that turns the
direction of text), `\\\\` a backslash itself. Every file has exactly one such name.
"""

import re
import unicodedata

MAX_NAME_BYTES = 1024
"""Most bytes of a whole name, as text."""
_ESCAPE = re.compile(rb"\\(?:x([0-9a-f]{2})|(\\)|)")
_HIDDEN = frozenset({"Cc", "Zl", "Zp"})
_DIRECTIONS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


class OutputNameError(ValueError):
    """Text that is no name of an output file; the message says why."""


def name_of(path: bytes) -> str:
    """Return the name of a path relative to the job's folder, as the host has it.

    Raises:
        OutputNameError: it is too long to be stored.
    """
    name = "".join(map(_escaped, path.decode("utf-8", "surrogateescape")))
    if len(name.encode()) > MAX_NAME_BYTES:
        raise OutputNameError(f"its name has more than {MAX_NAME_BYTES} bytes")
    return name


def path_of(name: str) -> bytes:
    """Return the relative path that a name stands for; it leads nowhere outside its folder.

    Raises:
        OutputNameError: it is not a name that `name_of` returns.
    """
    try:
        encoded = name.encode()
    except UnicodeEncodeError:
        raise OutputNameError("it is not UTF-8") from None
    if len(encoded) > MAX_NAME_BYTES:
        raise OutputNameError(f"it has more than {MAX_NAME_BYTES} bytes")
    path = _ESCAPE.sub(_unescaped, encoded)
    if any(part in (b"", b".", b"..") for part in path.split(b"/")):
        raise OutputNameError("it must be relative, without empty parts, `.` and `..`")
    if b"\0" in path or name_of(path) != name:
        raise OutputNameError(r"a backslash begins `\xNN` or `\\`, where a name needs one")
    return path


def _escaped(char: str) -> str:
    if char == "\\":
        return "\\\\"
    is_byte = "\udc80" <= char <= "\udcff"
    if is_byte or unicodedata.category(char) in _HIDDEN or char in _DIRECTIONS:
        return "".join(f"\\x{byte:02x}" for byte in char.encode("utf-8", "surrogateescape"))
    return char


def _unescaped(found: "re.Match[bytes]") -> bytes:
    if found[1] is not None:
        return bytes.fromhex(found[1].decode())
    return found[2] or b"\\"
