"""Random requests, some that keep to the document and some that do not: answers are described."""

import copy
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase
from schemathesis.core.result import Ok
from schemathesis.pytest.lazy import get_all_tests
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)
from support.cluster.web import served
from support.examples import share_of
from support.tracked import ROOT

from trainhall.api import openapi_document as document
from trainhall.api.app import create_app
from trainhall.api.settings import Settings

CHECKS = [
    schemathesis.checks.not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
REFUSALS = {"checks": {"negative_data_rejection": {"expected-statuses": ["4xx"]}}}


def _operations(described: Any) -> list[str]:
    paths = described["paths"].items()
    return [f"{method.upper()} {path}" for path, methods in paths for method in methods]


OPERATIONS = _operations(json.loads((ROOT / "dashboard/openapi.json").read_text(encoding="utf-8")))
SUBMISSION = "POST /api/v1/training/jobs"
EXPERIMENT = "POST /api/v1/experiments"
FEW = hypothesis.settings(
    max_examples=share_of(10),
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


# Requests are made in the tests, since every worker collects this file and one runs it.
@pytest.fixture(scope="module")
def description() -> Any:
    described = document.document()
    assert sorted(OPERATIONS) == sorted(_operations(described))
    return described


@pytest.fixture(scope="module")
def random_and_every_boundary(description: Any) -> Any:
    return schemathesis.openapi.from_dict(description, config=_config())


@pytest.fixture(scope="module")
def every_boundary_of_a_job(description: Any) -> Any:
    """As JSON alone: YAML has the same hundreds of boundaries thrice more."""
    operations = copy.deepcopy(description)
    content = operations["paths"]["/api/v1/training/jobs"]["post"]["requestBody"]["content"]
    for kind in [kind for kind in content if kind != "application/json"]:
        del content[kind]
    return schemathesis.openapi.from_dict(operations, config=_config())


@pytest.fixture(scope="module")
def random_and_valid_boundaries(description: Any) -> Any:
    """Without boundaries that are refused before the database is asked: they go to the other."""
    config = _config(phases={"coverage": {"generation": {"mode": "positive"}}})
    return schemathesis.openapi.from_dict(description, config=config)


@pytest.fixture(scope="module")
def random_documents(description: Any) -> Any:
    """In every media type, without the boundaries that the other database is sent."""
    config = _config(phases={"coverage": {"enabled": False}})
    return schemathesis.openapi.from_dict(description, config=config)


def _config(**more: Any) -> schemathesis.Config:
    return schemathesis.Config.from_dict(REFUSALS | more)


# A parameter each, for the name of a test to say which database it needs.
@pytest.fixture(scope="module", params=["sqlite"])
def on_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One server for all operations: what one leaves behind, the next one meets."""
    folder = tmp_path_factory.mktemp("conformance")
    with _serving(folder, f"sqlite:///{folder}/trainhall.db") as url:
        yield url


@pytest.fixture(scope="module", params=["postgres"])
def on_postgres(
    new_postgres: Callable[[], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    with _serving(tmp_path_factory.mktemp("conformance"), new_postgres()) as url:
        yield url


def _serving(folder: Path, database_url: str) -> AbstractContextManager[str]:
    settings = Settings(data_dir=folder, database_url=database_url, auth="none")
    return served(create_app(settings))


@pytest.mark.parametrize("operation", OPERATIONS)
def test_answers_keep_to_the_document(
    operation: str, random_and_valid_boundaries: Any, random_documents: Any, on_sqlite: str
) -> None:
    long = operation in (SUBMISSION, EXPERIMENT)
    asked = random_documents if long else random_and_valid_boundaries
    _check(asked.include(name=operation), on_sqlite)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_answers_keep_to_the_document_on_postgres(
    operation: str,
    every_boundary_of_a_job: Any,
    random_documents: Any,
    random_and_every_boundary: Any,
    on_postgres: str,
) -> None:
    asked = every_boundary_of_a_job if operation == SUBMISSION else random_and_every_boundary
    _check(asked.include(name=operation), on_postgres)
    if operation == SUBMISSION:  # the boundaries are JSON alone
        _check(random_documents.include(name=operation), on_postgres)


def _check(one_operation: Any, url: str) -> None:
    def check(case: schemathesis.Case[Any]) -> None:
        case.call_and_validate(base_url=url, checks=CHECKS, session=session)

    with requests.Session() as session:
        session.trust_env = False  # it would read the environment's proxies for each request
        [made] = get_all_tests(schema=one_operation, test_func=check, settings=FEW, given_kwargs={})
        assert isinstance(made, Ok), made
        _, test = made.ok()
        test()
