"""/docs: the OpenAPI document as a page, which needs no script and nothing from elsewhere."""

import html
import json
from collections.abc import Iterator
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse

from trainhall.api.routes.site.dashboard import STYLED_TEXT_POLICY

router = APIRouter(include_in_schema=False)

_HEAD = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="/favicon.svg" type="image/svg+xml">
<title>Trainhall API</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
code, pre { font: 13px/1.45 ui-monospace, monospace }
code { overflow-wrap: anywhere }
pre { background: #8881; padding: .7rem; border-radius: .4rem; overflow: auto; max-height: 30rem }
details { border: 1px solid #8884; border-radius: .4rem; margin: .4rem 0; padding: .4rem .8rem }
details details { margin: .3rem 0 }
summary { cursor: pointer }
b.method { display: inline-block; width: 4.5rem }
table { border-collapse: collapse; width: 100% }
td, th { text-align: left; vertical-align: top; padding: .2rem .8rem .2rem 0 }
small { opacity: .7 }
</style>
"""


@router.get("/docs")
async def read_docs(request: Request) -> HTMLResponse:
    document = request.app.openapi()
    headers = {"Content-Security-Policy": STYLED_TEXT_POLICY}
    return HTMLResponse("".join(_page(document)), headers=headers)


def _page(document: dict[str, Any]) -> Iterator[str]:
    info = document["info"]
    yield _HEAD
    yield f"<h1>{_text(info['title'])} <small>{_text(info['version'])}</small></h1>"
    for paragraph in info["description"].split("\n\n"):
        yield f"<p>{_inline(paragraph)}</p>"
    yield '<p>For programs: <a href="/openapi.json">openapi.json</a></p>'
    for tag in document["tags"]:
        yield f"<h2 id='{_text(tag['name'])}'>{_text(tag['name'])}</h2>"
        yield f"<p>{_inline(tag['description'])}</p>"
        for path, methods in document["paths"].items():
            for method, operation in methods.items():
                if tag["name"] in operation["tags"]:
                    yield from _operation(path, method, operation)
    yield "<h2 id='schemas'>Schemas</h2>"
    for name, schema in document["components"]["schemas"].items():
        yield from _schema(name, schema)


def _operation(path: str, method: str, operation: dict[str, Any]) -> Iterator[str]:
    yield (
        f"<details id='{_text(operation['operationId'])}'><summary>"
        f"<b class='method'>{method.upper()}</b><code>{_text(path)}</code> "
        f"<small>{_text(operation['summary'])}</small></summary>"
    )
    yield f"<p>{_inline(operation.get('description', ''))}</p>"
    if parameters := operation.get("parameters"):
        yield "<table><tr><th>parameter</th><th>in</th><th>type</th><th>meaning</th></tr>"
        for parameter in parameters:
            needed = "" if not parameter.get("required") else " <small>(required)</small>"
            yield (
                f"<tr><td><code>{_text(parameter['name'])}</code>{needed}</td>"
                f"<td>{_text(parameter['in'])}</td><td>{_type(parameter['schema'])}</td>"
                f"<td>{_inline(parameter.get('description', ''))}</td></tr>"
            )
        yield "</table>"
    if body := operation.get("requestBody"):
        yield f"<h4>Body</h4><p>{_inline(body.get('description', ''))}</p>"
        for media, content in body["content"].items():
            yield from _content(media, content)
    yield "<h4>Answers</h4>"
    for status, answer in operation["responses"].items():
        yield f"<details><summary><b>{status}</b> {_inline(answer['description'])}</summary>"
        for media, content in answer.get("content", {}).items():
            yield from _content(media, content)
        yield "</details>"
    yield "</details>"


def _content(media: str, content: dict[str, Any]) -> Iterator[str]:
    yield f"<p><code>{_text(media)}</code> {_type(content.get('schema', {}))}</p>"
    shown = [entry["value"] for entry in content.get("examples", {}).values()]
    if "example" in content:
        shown.append(content["example"])
    for value in shown:
        text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
        yield f"<pre>{_text(text)}</pre>"


def _schema(name: str, schema: dict[str, Any]) -> Iterator[str]:
    yield f"<details id='schema-{_text(name)}'><summary><code>{_text(name)}</code></summary>"
    yield f"<p>{_inline(schema.get('description', ''))}</p>"
    if "properties" in schema:
        yield "<table><tr><th>field</th><th>type</th><th>meaning</th></tr>"
        for field, inner in schema["properties"].items():
            needed = " <small>(required)</small>" if field in schema.get("required", []) else ""
            yield (
                f"<tr><td><code>{_text(field)}</code>{needed}</td><td>{_type(inner)}</td>"
                f"<td>{_inline(inner.get('description', ''))}</td></tr>"
            )
        yield "</table>"
    else:
        yield f"<p>{_type(schema)}</p>"
    yield "</details>"


def _type(schema: dict[str, Any]) -> str:
    """Format a schema in a few words, with links to those that have a name."""
    if reference := schema.get("$ref"):
        name = _text(reference.rpartition("/")[2])
        return f"<a href='#schema-{name}'>{name}</a>"
    if choices := schema.get("anyOf") or schema.get("allOf"):
        return " or ".join(_type(choice) for choice in choices)
    if values := schema.get("enum"):
        return " · ".join(f"<code>{_text(str(value))}</code>" for value in values)
    if "const" in schema:
        return f"<code>{_text(str(schema['const']))}</code>"
    kind = str(schema.get("format") or schema.get("type") or "anything")
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    bounds = [
        f"{sign} {schema[key]}"
        for key, sign in (
            ("minimum", "≥"), ("exclusiveMinimum", ">"), ("maximum", "≤"),
            ("exclusiveMaximum", "<"), ("maxLength", "length ≤"),
        )
        if key in schema
    ]  # fmt: skip
    return _text(" ".join([kind, *bounds]))


def _inline(text: str) -> str:
    """Plain text in which only `code` is marked."""
    parts = _text(text).split("`")
    return "".join(f"<code>{part}</code>" if i % 2 else part for i, part in enumerate(parts))


def _text(text: str) -> str:
    return html.escape(text, quote=True)
