"""Random requests, some that keep to the document and some that do not: answers are described."""

from collections.abc import Iterator
from pathlib import Path

import hypothesis
import psycopg
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)
from support.web import served

from trainhall.api import openapi
from trainhall.api.app import create_app
from trainhall.api.settings import Settings

CHECKS = (
    schemathesis.checks.not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
)
CONFIG = schemathesis.Config.from_dict(
    {"checks": {"negative_data_rejection": {"expected-statuses": ["4xx"]}}}
)
DOCUMENT = schemathesis.openapi.from_dict(openapi.document(), config=CONFIG)


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def address(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """One server for all operations: what one leaves behind, the next one meets."""
    folder: Path = tmp_path_factory.mktemp("conformance")
    database = f"sqlite:///{folder}/trainhall.db"
    if request.param == "postgres":
        server = request.getfixturevalue("postgres_server")
        with psycopg.connect(server.get_uri(), autocommit=True) as connection:
            connection.execute("CREATE DATABASE conformance")
        database = server.get_uri(database="conformance")
    with served(create_app(Settings(data_dir=folder, database_url=database))) as url:
        yield url


@DOCUMENT.parametrize()
@hypothesis.settings(
    max_examples=10,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_answers_keep_to_the_document(case: schemathesis.Case, address: str) -> None:
    case.call_and_validate(base_url=address, checks=CHECKS)
