"""Style, types, boundaries between the packages, and that generated files are current."""

import sys

from steps import BIN, PROCESSORS, Step, main


def tool(name: str) -> str:
    return str(BIN / name)


# Those that take longest come first, as they run side by side.
STEPS = [
    Step("mypy", [tool("mypy")]),
    Step("tsc", ["npm", "run", "--silent", "typecheck"], "dashboard"),
    Step("ruff check", [tool("ruff"), "check", "."]),
    Step("ruff format", [tool("ruff"), "format", "--check", "."]),
    Step("import-linter", [tool("lint-imports"), "--no-cache"]),
    Step("the generated documents", [sys.executable, "scripts/generate_docs.py", "--check"]),
    Step("the generated API client", ["npm", "run", "--silent", "generate:check"], "dashboard"),
    Step("Biome", ["npm", "run", "--silent", "lint"], "dashboard"),
]

if __name__ == "__main__":
    sys.exit(main(__doc__ or "", STEPS, at_once=PROCESSORS))
