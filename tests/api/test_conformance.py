"""Random requests, some that keep to the document and some that do not: answers are described."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)
from support.cluster.web import served

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


def _requests(**config: Any) -> Any:
    """What every operation of the document is asked."""
    found = schemathesis.Config.from_dict(REFUSALS | config)
    return schemathesis.openapi.from_dict(document.document(), config=found)


RANDOM_AND_EVERY_BOUNDARY = _requests()
# A job has hundreds of boundaries, and nearly all are refused before any database is reached.
EVERY_BOUNDARY_BUT_A_JOBS = _requests(
    operations=[{"include-operation-id": "submitJob", "phases": {"coverage": {"enabled": False}}}]
)
FEW = hypothesis.settings(
    max_examples=10,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


# A parameter each, and no plain fixture: else the operations' tests would all have one name.
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
    return served(create_app(Settings(data_dir=folder, database_url=database_url)))


@RANDOM_AND_EVERY_BOUNDARY.parametrize()  # type: ignore[untyped-decorator]
@FEW
def test_answers_keep_to_the_document(case: schemathesis.Case[Any], on_sqlite: str) -> None:
    case.call_and_validate(base_url=on_sqlite, checks=CHECKS)


@EVERY_BOUNDARY_BUT_A_JOBS.parametrize()  # type: ignore[untyped-decorator]
@FEW
def test_answers_keep_to_the_document_on_postgres(
    case: schemathesis.Case[Any], on_postgres: str
) -> None:
    case.call_and_validate(base_url=on_postgres, checks=CHECKS)
