"""Messages in docs/troubleshooting.md are those that the programs write."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()
FOREIGN = ("torch_", "NCCL")
"""Marks of messages that others write."""
MESSAGES = [
    line.removeprefix("### ").strip("`")
    for line in PAGE.splitlines()
    if line.startswith("### `") and not any(mark in line for mark in FOREIGN)
]
SHORTEST = 5
FOLDERS = ("api", "cli", "cluster", "parallelism", "training")


def literals() -> str:
    """The sources with string literals joined over lines, as Python joins them."""
    text = "\n".join(
        path.read_text(encoding="utf-8")
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
    )
    return re.sub(r"""["']\s*\n\s*f?["']""", "", text)


@pytest.fixture(scope="module")
def sources() -> str:
    return literals()


@pytest.mark.parametrize("message", MESSAGES)
def test_troubleshooting_messages_exist_in_sources(message: str, sources: str) -> None:
    parts = [part.strip(" ();:") for part in message.split("…")]
    assert any(len(part) >= SHORTEST for part in parts)
    for part in parts:
        if len(part) >= SHORTEST:
            assert part in sources, part
