"""Imports of a coordinator without what it never uses."""

import importlib
import sys


def import_structlog() -> None:
    """Import structlog without rich, with which it would show tracebacks in colours: no log of ours
    does, and it is 4 MB and a thirtieth of a start. What imports rich later finds it."""
    if "structlog" in sys.modules or "rich" in sys.modules:
        return
    sys.modules["rich"] = None  # type: ignore[assignment] # Python's mark of what is not to be found
    try:
        importlib.import_module("structlog")
    finally:
        del sys.modules["rich"]
