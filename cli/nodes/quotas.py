"""The command `quotas`: how many devices projects and users may hold, and do."""

from trainhall.cli.base import output as out
from trainhall.cli.base.connect import connect
from trainhall.cli.base.options import DEFAULT_URL, Format, Output, Url


def quotas(output: Output = Format.TABLE, url: Url = DEFAULT_URL) -> None:
    """List the quotas of projects and users, and the devices in use.

    Lists those that have a quota, hold devices or wait for some. Quotas are set in the
    coordinator's trainhall.toml.

    \b
    Examples:
      trainhall quotas
    """
    with connect(url) as client:
        pages = list(client.pages("/cluster/quotas"))
        out.notice_if_simulated(client)
    items = [item for page in pages for item in page["items"]]
    columns = [
        out.Column("KIND", lambda q: q["kind"]),
        out.Column("NAME", lambda q: q["name"]),
        out.Column("USED", lambda q: str(q["used"]), right=True),
        out.Column("QUOTA", _limit, right=True),
        out.Column("WAITING", lambda q: str(q["waiting"]), right=True),
    ]
    if output is Format.NAME:
        items = [{"id": item["name"]} for item in items]
    out.print_items(
        items,
        columns,
        output,
        empty="No project or user has a quota, holds devices or waits for some.",
    )
    if output is Format.TABLE and (text := _of_others(pages[-1]["others"])):
        out.notice(text)


def _limit(quota: out.Json) -> str:
    return "unlimited" if quota["limit"] is None else str(quota["limit"])


def _of_others(others: out.Json) -> str | None:
    """Return a line for everybody who is not listed; None: unlimited."""
    parts = [
        f"any other {kind} may hold {devices} device{'' if devices == 1 else 's'}"
        for kind, devices in others.items()
        if devices is not None
    ]
    return f"{'; '.join(parts).capitalize()}." if parts else None
