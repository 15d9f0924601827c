"""Masking of what looks like a secret, by its name or by the form of its value."""

import re
from collections.abc import Sequence

MASK = "***"
_WORD = (
    "token|secret|secrets|password|passwd|passphrase|credential|credentials|api[_-]?key|"
    "access[_-]?key|private[_-]?key|secret[_-]?key"
)
_SECRET_NAME = re.compile(rf"(?:^|[^a-z])(?:{_WORD})$", re.IGNORECASE)
_LOGIN = re.compile(r"(?<=://)[^/\s@\"']+@")
_TOKENS = re.compile(
    r"""
    \b(?: hf_[A-Za-z0-9]{20,} | gh[pousr]_[A-Za-z0-9]{20,} | github_pat_\w{20,} | glpat-[\w-]{16,}
      | sk-[\w-]{20,} | AKIA[0-9A-Z]{16} | AIza[\w-]{30,} | xox[abp]-[\w-]{10,}
      | thj?_[\w-]{20,} | eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]+ )
    | -----BEGIN\ [A-Z ]*PRIVATE\ KEY-----(?s:.*?)(?:-----END\ [A-Z ]*PRIVATE\ KEY-----|\Z)
    """,
    re.VERBOSE | re.ASCII,
)
_QUOTED = re.compile(
    rf"(?P<before>(?:\b|_)(?:{_WORD})[\"']?\s*[:=]\s*)(?P<quote>[\"'])(?P<value>(?:(?!(?P=quote)).)+)",
    re.IGNORECASE,
)
_VARIABLE = re.compile(
    rf"(?P<before>^[+\- ]?\s*(?:export\s+)?(?:[A-Z0-9]+_)*(?:{_WORD.upper()})=)[^\s\"'(]+",
    re.MULTILINE,
)
_UNQUOTED = re.compile(rf"(?P<before>(?:\b|_)(?:{_WORD})\s*[:=]\s*)[^\s\"',}}]+", re.IGNORECASE)
"""Values in an argument in YAML; in code they may be expressions."""


def is_secret_name(name: str) -> bool:
    """Return whether a name is that of a secret: `HF_TOKEN` and `--api-key` are, `max_tokens` and
    `tokenizer` are not."""
    return _SECRET_NAME.search(name) is not None


def mask_text(text: str) -> str:
    """Mask logins in URLs, tokens of known services, private keys, and literals that are given to
    the name of a secret."""
    text = _TOKENS.sub(MASK, _LOGIN.sub("", text))
    text = _QUOTED.sub(lambda m: f"{m['before']}{m['quote']}{MASK}", text)
    return _VARIABLE.sub(lambda m: f"{m['before']}{MASK}", text)


def mask_command(command: Sequence[str]) -> list[str]:
    """Mask the arguments of a command that are values of secrets, as in `--token VALUE`."""
    masked: list[str] = []
    follows = False
    for argument in command:
        name, equals, _ = argument.partition("=")
        if follows and not argument.startswith("-"):
            masked.append(MASK)
        elif equals and is_secret_name(name):
            masked.append(f"{name}={MASK}")
        else:
            text = mask_text(argument)
            masked.append(_UNQUOTED.sub(lambda m: f"{m['before']}{MASK}", text))
        follows = argument.startswith("-") and not equals and is_secret_name(argument)
    return masked
