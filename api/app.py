"""The web application of a coordinator.

Observe               an id, a count, an answer to what fails
└ Guard               from where a request may come
  └ ForwardedPages    the origins of jobs' ports, if there are any, and nothing else of them
    └ Authentication  who it comes from
      └ routes        /api/v1, agents, streams, probes, the document
        └ Dashboard   what no route answers
"""

import asyncio
import re
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, compile_path

from trainhall import __version__
from trainhall.api.forward.origins import ForwardDomain
from trainhall.api.forward.pages import ForwardedPages, Forwarding
from trainhall.api.guard import Guard
from trainhall.api.host.login_name import login_name
from trainhall.api.host.oidc_settings import OidcSettings
from trainhall.api.limits import Limits
from trainhall.api.login.authentication import Authentication
from trainhall.api.login.command_logins import CommandLogins
from trainhall.api.login.first_admin import (
    UNNAMED,
    ensure_admin_token,
    login_link,
    stored_for_own_user,
)
from trainhall.api.login.refusals import note_refusal
from trainhall.api.observe import Observe, RequestFigures
from trainhall.api.openapi_document import PUBLIC_ROUTERS, TITLE, describe, public_routes
from trainhall.api.problems import RefusalError, refusal_of
from trainhall.api.routes import agent, stream
from trainhall.api.routes.login import oidc
from trainhall.api.routes.site import docs, probes
from trainhall.api.routes.site.dashboard import Dashboard
from trainhall.api.routes.tracking import mlflow
from trainhall.api.routes.tunnels import sessions
from trainhall.api.settings import Settings
from trainhall.api.startup import StartupError, identity, migrate, only_one, open_database, sole_use
from trainhall.cluster.accounts.provider import ProviderAccounts
from trainhall.cluster.api_paths import AGENT_PREFIX, API_PREFIX
from trainhall.cluster.background_tasks import end_process
from trainhall.cluster.coordinator import Coordinator
from trainhall.cluster.errors import ClusterError
from trainhall.monitoring.errors import IngestError
from trainhall.training.spec import SpecError

STOP_SECONDS = 5.0
"""Time for the coordinator's own work, its lease and its database to end, together."""


def create_app(
    settings: Settings,
    *,
    url: str | None = None,
    on_login_link: Callable[[str], None] | None = None,
) -> FastAPI:
    """Create an application that starts a coordinator with itself and stops it at its end.

    Args:
        url: at which it will listen, if that is known: commands of the same user find its
            credential there.
        on_login_link: is handed the link that logs the first browser in, before it listens.

    Raises:
        StartupError: at its start, when the data folder or the database cannot be used, or another
            coordinator uses one of them.
    """
    figures = RequestFigures()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        def failed(name: str, error: BaseException | None) -> None:
            app.state.failed = True
            end_process(name, error)

        if settings.mock:
            # A coordinator of real nodes does without the simulation's 20 modules.
            from trainhall.cluster.simulator.mock.coordinator import mock_coordinator

            running = mock_coordinator(settings.cluster_options, failed)
        else:
            running = _running_coordinator(settings, failed, lambda: app.state.is_over())
        async with AsyncExitStack() as stack:
            try:
                app.state.coordinator = await stack.enter_async_context(running)
                await _open_accounts(app, url, on_login_link, stack)
                if app.state.forwarding is not None:
                    stack.push_async_callback(app.state.forwarding.close)
            except BaseException as error:
                app.state.startup_error = error
                raise
            yield

    app = FastAPI(
        title=TITLE,
        version=__version__,
        lifespan=lifespan,
        redirect_slashes=False,
        openapi_url="/openapi.json",
        docs_url=None,
        redoc_url=None,
    )
    app.state.settings = settings
    app.state.login_name = login_name()
    app.state.limits = Limits.of(settings)
    app.state.command_logins = CommandLogins()
    app.state.provider = app.state.provider_accounts = None
    app.state.startup_error = None
    domain = settings.forward_domain
    app.state.forwarding = forwarding = Forwarding(ForwardDomain(domain)) if domain else None
    app.state.failed = False
    app.state.is_over = lambda: False
    app.state.figures = figures
    app.openapi = lambda: describe(app)  # type: ignore[method-assign]
    # First, since nothing is asked as often.
    app.router.routes.append(agent.mounted())
    app.router.routes.extend(public_routes())
    app.router.routes.extend(mlflow.ROUTES)
    app.include_router(stream.router, prefix=API_PREFIX)
    app.include_router(sessions.router, prefix=API_PREFIX)
    app.include_router(oidc.router)
    app.include_router(docs.router)
    app.router.default = Dashboard()
    for kind in (
        RefusalError, ClusterError, IngestError, SpecError, RequestValidationError, HTTPException,
    ):  # fmt: skip
        app.add_exception_handler(kind, _refuse)
    app.add_middleware(Authentication, asks=settings.asks_for_login, public_url=settings.public_url)
    if forwarding is not None:
        app.add_middleware(ForwardedPages, forwarding=forwarding)
    app.add_middleware(
        Guard,
        insecure=settings.insecure,
        asks_for_login=settings.asks_for_login,
        simulated=settings.mock,
        allowed_hosts=settings.own_hosts,
        is_forwarded=lambda name: forwarding is not None and forwarding.serves(name),
    )
    app.add_middleware(Observe, figures=figures, access_log=settings.access_log)
    return app


async def _open_accounts(
    app: FastAPI,
    url: str | None,
    on_login_link: Callable[[str], None] | None,
    stack: AsyncExitStack,
) -> None:
    """Make what the coordinator's own user needs to log in, until `stack` ends."""
    settings: Settings = app.state.settings
    folder = None if settings.mock else settings.data_dir
    app.state.coordinator_id = secrets.token_hex(16) if folder is None else identity(folder)
    accounts = app.state.coordinator.accounts
    admin = await accounts.ensure_admin(app.state.login_name or UNNAMED)
    app.state.admin = admin
    try:
        await app.state.coordinator.projects.configure(settings.projects)
    except ClusterError as error:
        raise StartupError(f"the setting `projects` cannot be applied: {error.message}") from None
    if settings.oidc is not None and not settings.mock:
        await _open_provider(app, settings.oidc)
    if not settings.asks_for_login:
        return
    token = await ensure_admin_token(accounts, admin, folder, app.state.coordinator_id)
    stack.enter_context(stored_for_own_user(url, token))
    if on_login_link is not None:
        on_login_link(await login_link(accounts, admin, url or ""))


async def _open_provider(app: FastAPI, settings: OidcSettings) -> None:
    # A coordinator without a provider does without the modules of OpenID.
    from trainhall.api.login.oidc import OpenIdProvider

    coordinator = app.state.coordinator
    app.state.provider = OpenIdProvider(settings)
    app.state.provider_accounts = ProviderAccounts(
        coordinator.db,
        coordinator.clock,
        coordinator.ids,
        settings.rules,
        on_change=coordinator.accounts.forget_known,
    )
    await app.state.provider_accounts.withdraw()


@asynccontextmanager
async def _running_coordinator(
    settings: Settings,
    on_fatal: Callable[[str, BaseException | None], None],
    is_over: Callable[[], bool],
) -> AsyncIterator[Coordinator]:
    async with only_one(settings.data_dir, is_over):
        ends = AsyncExitStack()
        try:
            db = open_database(settings)
            ends.push_async_callback(db.close)
            await ends.enter_async_context(sole_use(db, settings.data_dir, is_over, on_fatal))
            await migrate(db)
            coordinator = Coordinator(
                db,
                data_dir=settings.data_dir,
                options=settings.cluster_options,
                on_fatal=on_fatal,
            )
            ends.push_async_callback(coordinator.hub.close)
            ends.push_async_callback(coordinator.stop)
            await coordinator.start()
            yield coordinator
        finally:
            async with asyncio.timeout(STOP_SECONDS):
                await ends.aclose()


async def _refuse(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException) and error.status_code in (404, 405):
        return _nothing_here(request, error.status_code).response()
    refusal = refusal_of(error)
    assert refusal is not None, f"no handler was added for {type(error)}"
    note_refusal(request, refusal, error)
    return refusal.response()


def _nothing_here(request: Request, status: int) -> RefusalError:
    where = f"{request.method} {request.url.path[:200]}"
    if status == 404:
        return RefusalError(404, "not-found", f"there is no route {where}; /docs lists all routes")
    allowed = sorted(_methods(request))
    return RefusalError(
        405, "method-not-allowed", f"{where} is not allowed; allowed: {', '.join(allowed)}",
        headers={"Allow": ", ".join(allowed)},
    )  # fmt: skip


def _methods(request: Request) -> set[str]:
    """Return the methods of every route at this path: a route knows only its own."""
    path = request.scope["path"]
    return {
        method for pattern, methods in _route_table() if pattern.match(path) for method in methods
    }


@cache
def _route_table() -> list[tuple[re.Pattern[str], set[str]]]:
    """Return the paths and methods of all routes, whatever way FastAPI keeps them."""
    routes: list[tuple[str, BaseRoute]] = [(AGENT_PREFIX, r) for r in agent.ROUTES]
    routes += [("", route) for route in mlflow.ROUTES]
    routes += [(prefix, route) for prefix, router in (
        ("", probes.router), ("", docs.router), *((API_PREFIX, public) for public in PUBLIC_ROUTERS)
    ) for route in router.routes]  # fmt: skip
    return [
        (compile_path(prefix + route.path)[0], route.methods or set())
        for prefix, route in routes
        if isinstance(route, Route)
    ]
