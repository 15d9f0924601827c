"""The document: complete, with examples that keep to their schemas."""

import re
import sys
from collections.abc import Iterator
from typing import Any, cast

import httpx
import jsonschema_rs
import orjson
import pytest
from support.tracked import ROOT

from trainhall.api import openapi_document
from trainhall.api.schemas.problems import Problem

# As the dashboard's client is generated from it; tests below compare it with what is served.
DOCUMENT = orjson.loads((ROOT / "dashboard/openapi.json").read_bytes())
OPERATIONS = [
    pytest.param(method, path, operation, id=operation["operationId"])
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
]
NAMES = {
    "submitJob",
    "listJobs",
    "listJobGroups",
    "getJob",
    "listViews",
    "saveView",
    "deleteView",
    "listReports",
    "createReport",
    "getReport",
    "changeReport",
    "deleteReport",
    "changeJob",
    "putCode",
    "listDataSets",
    "readEnvironment",
    "downloadLock",
    "getCode",
    "cancelJob",
    "deleteJob",
    "pauseJob",
    "resumeJob",
    "resizeJob",
    "listEvents",
    "readLedger",
    "readLogs",
    "downloadLogs",
    "listAttempts",
    "readPackages",
    "readProvenance",
    "listJobCode",
    "downloadJobCode",
    "compareJobCode",
    "listNodes",
    "registerNode",
    "getNode",
    "removeNode",
    "readNodeHistory",
    "listNodeEvents",
    "changeNode",
    "drainNode",
    "undrainNode",
    "listDevices",
    "readQueue",
    "readQueueHistory",
    "readQuotas",
    "askWhatIf",
    "readMetrics",
    "takeStacks",
    "profileJob",
    "listProfiles",
    "captureGradients",
    "readGradients",
    "readGradientsOfStep",
    "readSummary",
    "listCheckpoints",
    "getCheckpoint",
    "deleteCheckpoint",
    "pinCheckpoint",
    "unpinCheckpoint",
    "restoreCheckpoint",
    "verifyCheckpoint",
    "listCheckpointFiles",
    "readCheckpointFile",
    "collectCheckpoints",
    "listProjectSecrets",
    "setProjectSecret",
    "removeProjectSecret",
    "listOwnSecrets",
    "setOwnSecret",
    "removeOwnSecret",
    "listOutputs",
    "downloadOutput",
    "downloadOutputs",
    "createExperiment",
    "listExperiments",
    "getExperiment",
    "listTrials",
    "pauseExperiment",
    "resumeExperiment",
    "cancelExperiment",
    "analyzeExperiment",
    "readReport",
    "listAlerts",
    "createAlert",
    "getAlert",
    "changeAlert",
    "deleteAlert",
    "testAlert",
    "listDeliveries",
    "logIn",
    "logInByPassword",
    "listUsers",
    "createUser",
    "changeUser",
    "removeUser",
    "listGroups",
    "createGroup",
    "deleteGroup",
    "listGroupMembers",
    "addGroupMember",
    "removeGroupMember",
    "listProjects",
    "createPortLink",
    "createProject",
    "getProject",
    "changeProject",
    "deleteProject",
    "listMembers",
    "setMember",
    "removeMember",
    "logOut",
    "listAudit",
    "listLoginMethods",
    "beginDeviceLogin",
    "pollDeviceLogin",
    "readDeviceLogin",
    "decideDeviceLogin",
    "approveBrowserLogin",
    "tradeBrowserCode",
    "createLoginLink",
    "readMe",
    "listTokens",
    "createToken",
    "deleteToken",
    "listSessions",
    "endSession",
    "readHealth",
    "readReadiness",
    "readPrometheus",
}


def check(value: Any, schema: dict[str, Any]) -> None:
    whole = {**schema, "components": DOCUMENT["components"]}
    jsonschema_rs.Draft202012Validator(whole).validate(value)


def examples(content: dict[str, Any]) -> Iterator[Any]:
    yield from (entry["value"] for entry in content.get("examples", {}).values())
    if "example" in content:
        yield content["example"]


def test_operations_have_the_names_that_clients_use() -> None:
    names = [cast(dict[str, Any], p.values[2])["operationId"] for p in OPERATIONS]
    assert sorted(names) == sorted(NAMES)


def test_agents_routes_and_streams_are_not_public() -> None:
    assert not [path for path in DOCUMENT["paths"] if "/agent/" in path]


@pytest.mark.parametrize(("method", "path", "operation"), OPERATIONS)
def test_every_operation_is_described(method: str, path: str, operation: dict[str, Any]) -> None:
    assert operation["summary"]
    assert operation["description"]
    assert set(operation["tags"]) <= {tag["name"] for tag in DOCUMENT["tags"]}
    for parameter in operation.get("parameters", []):
        assert parameter["description"], parameter["name"]
        if parameter["in"] == "path":
            assert f"{{{parameter['name']}}}" in path
            assert parameter["schema"]["examples"]
    refused = {s: a for s, a in operation["responses"].items() if int(s) >= 400}
    needed = {"403", "500"} | ({"422", "503"} if path.startswith("/api/") else set())
    if "{" in path:
        needed.add("404")
    assert needed <= set(refused)
    for status, answer in refused.items():
        content = answer["content"]["application/problem+json"]
        assert content["schema"] == {"$ref": "#/components/schemas/Problem"}
        problem = Problem.model_validate(content["example"])
        assert str(problem.status) == status
    assert list(operation["responses"]) == sorted(operation["responses"])


@pytest.mark.parametrize(("method", "path", "operation"), OPERATIONS)
def test_examples_keep_to_their_schemas(method: str, path: str, operation: dict[str, Any]) -> None:
    parts = [operation.get("requestBody", {}), *operation["responses"].values()]
    for part in parts:
        for media, content in part.get("content", {}).items():
            shown = list(examples(content))
            assert shown, (media, part)
            for value in shown:
                if isinstance(value, str):
                    continue  # YAML, and Prometheus' text
                check(value, content["schema"])


def test_every_reference_leads_somewhere() -> None:
    text = orjson.dumps(DOCUMENT).decode()
    for name in set(re.findall(r'"#/components/schemas/([^"]+)"', text)):
        assert name in DOCUMENT["components"]["schemas"], name
    assert "HTTPValidationError" not in text


def test_openapi_keeps_schemas_of_spec_and_devices() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    assert "memory_total" in schemas["Device"]["properties"]
    assert schemas["SpecDevice"]["enum"] == ["auto", "cpu", "cuda"]


def test_schemas_have_names_of_their_own() -> None:
    """Of two classes with one name, the document has both with the name of their module."""
    assert not [n for n in DOCUMENT["components"]["schemas"] if n.lower().startswith("trainhall")]


async def test_server_serves_the_same_document(client: httpx.AsyncClient) -> None:
    served = (await client.get("/openapi.json")).json()
    assert served == DOCUMENT


def test_document_is_printed_without_a_server(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    openapi_document.main()
    sys.stdout.flush()
    assert orjson.loads(capfdbinary.readouterr().out) == DOCUMENT


async def test_openapi_page_loads_nothing_external(
    client: httpx.AsyncClient,
) -> None:
    page = await client.get("/docs")
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    for name in NAMES:
        assert f"id='{name}'" in page.text
    assert not re.findall(r"(?:src|href)=[\"'](?:https?:)?//", page.text)
    assert "<script" not in page.text
