"""All routes of an application."""

from collections.abc import Iterator
from typing import Any

from starlette.routing import BaseRoute, Mount


def routes_of(routes: list[BaseRoute], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Every method and path; of a websocket the method is WS."""
    for route in routes:
        if isinstance(route, Mount):
            yield from routes_of(list(route.routes), prefix + route.path)
        elif (inner := getattr(route, "effective_candidates", None)) is not None:
            assert not route.effective_low_priority_routes()  # type: ignore[attr-defined]
            yield from routes_of(inner(), prefix)
        else:
            shown: Any = getattr(route, "starlette_route", None) or route
            path = prefix + str(shown.path)
            for method in getattr(route, "methods", None) or {"WS"}:
                yield method, path
