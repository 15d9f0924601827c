"""Style, types, boundaries between the packages, and that generated files are current."""

import sys

from steps import BIN, Step, main


def tool(name: str) -> str:
    return str(BIN / name)


STEPS = [
    Step("ruff check", [tool("ruff"), "check", "."]),
    Step("ruff format", [tool("ruff"), "format", "--check", "."]),
    Step("mypy", [tool("mypy")]),
    Step("mypy on the benchmarks", [tool("mypy"), "benchmarks", "--explicit-package-bases"]),
    Step(
        "mypy on the tests",
        [tool("mypy"), "tests", "--explicit-package-bases", "--implicit-reexport"],
    ),
    Step("import-linter", [tool("lint-imports"), "--no-cache"]),
    Step("the generated documents", [sys.executable, "scripts/generate_docs.py", "--check"]),
    Step("the OpenAPI document", [sys.executable, "scripts/openapi.py", "--check"]),
    Step("the generated API client", ["npm", "run", "--silent", "generate:check"], "dashboard"),
    Step("Biome", ["npm", "run", "--silent", "lint"], "dashboard"),
    Step("tsc", ["npm", "run", "--silent", "typecheck"], "dashboard"),
]

if __name__ == "__main__":
    sys.exit(main(__doc__ or "", STEPS))
