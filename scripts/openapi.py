"""The text of dashboard/openapi.json, the source of the dashboard's client.

What only people read (descriptions, examples) makes no other client, and differs between versions
of the libraries that write the document; so a check compares the rest.
"""

import json
from typing import Any

from steps import ROOT

from trainhall.api.openapi_document import document

FILE = ROOT / "dashboard" / "openapi.json"
FOR_PEOPLE = {"description", "summary", "title", "example", "examples", "tags", "info"}


def for_programs(value: Any, *, names: bool = False) -> Any:
    """A document without what is for people; with `names`, all keys here are names to keep."""
    if isinstance(value, list):
        return [for_programs(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: for_programs(item, names=not names and key in ("properties", "schemas"))
        for key, item in value.items()
        if names or key not in FOR_PEOPLE
    }


def is_current() -> bool:
    """Return whether programs find in the file what the API is."""
    written = json.loads(FILE.read_text(encoding="utf-8"))
    return bool(for_programs(written) == for_programs(document()))


def text() -> str:
    return json.dumps(document(), indent=2, ensure_ascii=False) + "\n"
