"""Owner and project: options of lists, their columns, and what a submission names."""

from typing import Any

import pytest

from trainhall.api.host.login_name import login_name
from trainhall.cli.base.client import Client
from trainhall.cli.base.errors import UsageError
from trainhall.cli.base.options import with_project
from trainhall.cli.owners import owner_columns, owner_filter, owner_terms
from trainhall.cluster.jobs.listing.query import parse_query

URL = "http://lab:8000"


def test_owner_options_are_terms_of_a_query() -> None:
    terms = owner_terms(None, mine=True, project='a "b" \\c')
    parsed = parse_query(" ".join(terms))
    assert [term.values[0].text for term in parsed] == ["me", 'a "b" \\c']
    assert owner_terms(None, mine=False, project=None) == []


def test_owner_options_exclude_each_other() -> None:
    assert owner_filter("ada", mine=False, project="nlp") == {"user": "ada", "project": "nlp"}
    with pytest.raises(UsageError, match="--mine and --user"):
        owner_filter("ada", mine=True, project=None)


def test_owner_columns_appear_where_items_differ() -> None:
    def titles(*owners: tuple[str | None, str], wide: bool = False) -> list[str]:
        items = [{"user": user, "project": project} for user, project in owners]
        return [column.title for column in owner_columns(items, wide=wide)]

    assert titles(("ada", "default"), ("ada", "default")) == []
    assert titles(("ada", "default"), ("bob", "default")) == ["OWNER"]
    assert titles(("ada", "nlp"), (None, "default")) == ["OWNER", "PROJECT"]
    assert titles(("ada", "default"), wide=True) == ["OWNER", "PROJECT"]


@pytest.mark.parametrize("token", ["th_x", ""])
def test_submission_names_project_and_owner(monkeypatch: pytest.MonkeyPatch, token: str) -> None:
    sent: list[Any] = []
    monkeypatch.setenv("TRAINHALL_PROJECT", "vision")
    monkeypatch.setattr(Client, "request", lambda _, *path, json, **options: sent.append(json))
    with Client(URL, token=token) as client:
        client.submit({"name": "a", "project": None})
        client.submit({"name": "a", "project": "nlp", "user": "bob"}, dry_run=True)
        client.create_experiment({"job": {"name": "a"}})
    # A credential says who it is.
    user = login_name() if not token else None
    owned = {"name": "a", "project": "vision", **({"user": user} if user else {})}
    assert sent == [owned, {"name": "a", "project": "nlp", "user": "bob"}, {"job": owned}]


def test_option_project_is_an_override() -> None:
    assert with_project(["a=1"], "on") == ["a=1", 'project="on"']
    assert with_project(None, None) == []
    assert with_project(None, "b", at="job.") == ['job.project="b"']
