"""The dashboard: files that `npm run build` wrote, and its page for every address of its own."""

from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocketClose

from trainhall.api.login.authentication import SERVER_PREFIXES

STATIC = Path(__file__).parents[2] / "static"

# Names of assets carry a hash of their content; the page names them, so it is asked for every time.
_IMMUTABLE = "public, max-age=31536000, immutable"
_ASK = "no-cache"
_POLICY = (
    "default-src 'self'; img-src 'self' data: blob:; style-src 'self' 'unsafe-inline'; "
    "connect-src 'self'; object-src 'none'; base-uri 'none'; frame-ancestors 'none'"
)
# speedscope, in a frame of the dashboard, reads what the dashboard hands it as a blob: whatever its
# address names as a trace, it requests nothing from this server or another. Its script makes its
# styles, and compiles WebAssembly to read names of functions in C++.
_SPEEDSCOPE_POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self'; connect-src blob:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'self'"
)
STYLED_TEXT_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
"""For pages of ours without a script."""
_NOT_BUILT = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Trainhall</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 40rem; margin: 4rem auto; padding: 0 1rem }
pre { background: #8882; padding: 1rem; border-radius: .5rem }
</style>
<h1>Trainhall runs</h1>
<p>Its dashboard is not built yet. In the folder of the sources:</p>
<pre>cd dashboard
npm ci
npm run build</pre>
<p>Then reload this page. Everything else works without it: see the <a href="/docs">API</a> and
<code>trainhall --help</code>.</p>
</html>
"""


class Dashboard:
    """Answers what no route answers: a file, the page, or 404."""

    def __init__(self, folder: Path = STATIC) -> None:
        self._folder = folder

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await WebSocketClose(4404, "there is no websocket at this path")(scope, receive, send)
            return
        response = self._response(scope["method"], scope["path"])
        if response is None:
            raise HTTPException(404)
        await response(scope, receive, send)

    def _response(self, method: str, path: str) -> Response | None:
        if method not in ("GET", "HEAD") or path == "/api" or path.startswith(SERVER_PREFIXES):
            return None
        file = self._file(path)
        if file is not None:
            caching = _IMMUTABLE if path.startswith("/assets/") else _ASK
            policy = _SPEEDSCOPE_POLICY if path.startswith("/speedscope/") else _POLICY
            return _sent(file, caching, policy)
        if "." in path.rpartition("/")[2]:
            return None  # a file that is not there, not one of the page's own addresses
        page = self._folder / "index.html"
        if page.is_file():
            return _sent(page, _ASK)
        headers = {"Cache-Control": "no-store", "Content-Security-Policy": STYLED_TEXT_POLICY}
        return HTMLResponse(_NOT_BUILT, headers=headers)

    def _file(self, path: str) -> Path | None:
        parts = path.strip("/").split("/")
        if any(
            not part or part.startswith(".") or "\0" in part or len(part) > 255 for part in parts
        ):
            return None
        file = self._folder.joinpath(*parts)
        try:
            inside = file.is_file() and file.resolve().is_relative_to(self._folder.resolve())
        except OSError:
            return None  # no file has a name of so many bytes
        return file if inside else None


def _sent(file: Path, caching: str, policy: str = _POLICY) -> FileResponse:
    headers = {"Cache-Control": caching, "Content-Security-Policy": policy}
    return FileResponse(file, headers=headers)
