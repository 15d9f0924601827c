"""Random requests, some that keep to the document and some that do not: answers are described."""

import copy
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase
from schemathesis.generation.feedback import FeedbackSources
from schemathesis.pytest._test_builder import build_operation_test
from schemathesis.python._constants.orchestrator import make_constants_value_source
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)
from support.cluster.web import served
from support.database import ApplicationDatabase
from support.examples import share_of
from support.tracked import ROOT

from trainhall.api import startup
from trainhall.api.app import create_app
from trainhall.api.settings import Settings

CHECKS = [
    schemathesis.checks.not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
AnyCase = schemathesis.Case[Any]
BOUNDARIES_ALONE = {"examples": {"enabled": False}, "fuzzing": {"enabled": False}}
REFUSALS = {"checks": {"negative_data_rejection": {"expected-statuses": ["4xx"]}}}


# What is served is the same: tests/api/test_openapi_document.py compares them.
DOCUMENT = json.loads((ROOT / "dashboard/openapi.json").read_text(encoding="utf-8"))
OPERATIONS = [
    f"{method.upper()} {path}" for path, methods in DOCUMENT["paths"].items() for method in methods
]
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
def random_requests() -> Callable[[str], list[AnyCase]]:
    """Makes random requests of an operation, once for both databases."""
    schema = _schema(DOCUMENT, coverage={"enabled": False})
    return cache(lambda operation: _made(schema, operation))


@pytest.fixture(scope="module")
def every_boundary() -> Any:
    """As JSON where that is one of the kinds: YAML has the same hundreds of boundaries thrice more,
    and becomes the same values. Random requests are of all kinds."""
    described = copy.deepcopy(DOCUMENT)
    for methods in described["paths"].values():
        for operation in methods.values():
            content = operation.get("requestBody", {}).get("content", {})
            if "application/json" in content:
                for kind in [kind for kind in content if kind.endswith("yaml")]:
                    del content[kind]
    return _schema(described, **BOUNDARIES_ALONE)


@pytest.fixture(scope="module")
def valid_boundaries() -> Any:
    """Without boundaries that are refused before the database is asked: they go to the other."""
    return _schema(DOCUMENT, **BOUNDARIES_ALONE, coverage={"generation": {"mode": "positive"}})


def _schema(described: Any, **phases: Any) -> Any:
    config = schemathesis.Config.from_dict(REFUSALS | {"phases": phases})
    return schemathesis.openapi.from_dict(described, config=config)


def _made(schema: Any, operation: str) -> list[AnyCase]:
    cases: list[AnyCase] = []

    def keep(case: AnyCase) -> None:
        cases.append(case)

    method, path = operation.split(maxsplit=1)
    make = build_operation_test(
        config=schema.config,
        operation=schema[path][method],
        test_func=keep,
        given_kwargs={},
        feedback=FeedbackSources(constants_value_source=make_constants_value_source(schema)),
        explicit_settings=FEW,
    )
    make()
    return cases


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


@contextmanager
def _serving(folder: Path, database_url: str) -> Iterator[str]:
    settings = Settings(data_dir=folder, database_url=database_url, auth="none")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(startup, "Database", ApplicationDatabase)
        with served(create_app(settings)) as url:
            yield url


@pytest.mark.parametrize("operation", OPERATIONS)
def test_answers_keep_to_the_document(
    operation: str,
    random_requests: Callable[[str], list[AnyCase]],
    valid_boundaries: Any,
    on_sqlite: str,
) -> None:
    long = operation in (SUBMISSION, EXPERIMENT)
    boundaries = [] if long else _made(valid_boundaries, operation)
    _check([*boundaries, *random_requests(operation)], on_sqlite)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_answers_keep_to_the_document_on_postgres(
    operation: str,
    random_requests: Callable[[str], list[AnyCase]],
    every_boundary: Any,
    on_postgres: str,
) -> None:
    _check([*_made(every_boundary, operation), *random_requests(operation)], on_postgres)


def _check(cases: list[AnyCase], url: str) -> None:
    assert cases
    with requests.Session() as session:
        session.trust_env = False  # it would read the environment's proxies for each request
        for case in cases:
            case.call_and_validate(base_url=url, checks=CHECKS, session=session)
