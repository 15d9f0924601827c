"""Writes dashboard/openapi.json, the source of the dashboard's client; `--check` compares.

What only people read (descriptions, examples) makes no other client, and differs between versions
of the libraries that write the document; so the check looks at the rest.
"""

import argparse
import json
import sys
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say whether it is current")
    check = parser.parse_args().check
    now = document()
    if not check:
        FILE.write_text(json.dumps(now, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        return 0
    if for_programs(json.loads(FILE.read_text(encoding="utf-8"))) == for_programs(now):
        return 0
    print("dashboard/openapi.json is not what the API is: run `make generate`", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
