"""What each route is asked for: parameters and bodies of requests about some things."""

from dataclasses import dataclass, field
from typing import Any

from support.access.world import Things, spec_of
from support.archives import archive

V1 = "/api/v1"


@dataclass(frozen=True)
class Asked:
    """Parts of a request beside its method and path."""

    query: dict[str, str] = field(default_factory=dict)
    json: Any = None
    content: bytes | None = None
    params: dict[str, str] = field(default_factory=dict)
    """Values of the parameters of its path, in place of those of the things."""


def asked(method: str, path: str, things: Things, name: str) -> Asked:
    """What a valid request of a route is about these things.

    Args:
        name: one that nothing has yet.
    """
    match method, path.removeprefix(V1):
        case "POST", "/training/jobs":
            return Asked(json=spec_of(things.mark))
        case "GET", "/training/jobs/groups":
            return Asked(query={"by": "tag"})
        case "GET", "/training/jobs/{job_id}/code/diff":
            return Asked(query={"other": things.job})
        case "PATCH", "/training/jobs/{job_id}":
            return Asked(json={"notes": "other"})
        case "POST", "/training/jobs/{job_id}/profile":
            return Asked(json={"steps": 5})
        case "PUT", "/training/jobs/{job_id}/resize":
            return Asked(json={"workers": 2})
        case ("WS", "/training/jobs/{job_id}/forward/{port}") | (
            "POST",
            "/training/jobs/{job_id}/ports/{port}/link",
        ):
            return Asked(params={"port": "8888"})
        case "PUT", "/training/code/{sha256}":
            # Bytes that the other project has, too.
            digest, data = archive(**{"shared.py": "print(1)"})
            return Asked(query={"project": things.project}, content=data, params={"sha256": digest})
        case "POST", "/experiments":
            return Asked(
                json={
                    "name": things.mark, "kind": "sweep", "method": "grid",
                    "job": spec_of(things.mark), "space": {"resources.workers": [1]},
                    "objective": {"metric": "loss"},
                }
            )  # fmt: skip
        case "GET", "/experiments/{experiment_id}/report":
            return Asked(query={"format": "json"})
        case "POST", "/cluster/nodes":
            return Asked(json={})
        case "PATCH", "/cluster/nodes/{node_id}":
            return Asked(json={"labels": {"rack": "b"}})
        case "POST", "/cluster/what-if":
            return Asked(json={"days": 7})
        case "POST", "/alerts":
            scope = {"kind": "project", "value": things.project}
            return Asked(
                json={
                    "name": name, "on": ["job.failed"], "target": {"kind": "browser"},
                    "scope": scope,
                }
            )  # fmt: skip
        case "PATCH", "/alerts/{alert_id}":
            return Asked(json={"enabled": False})
        case "POST", "/views":
            return Asked(json={"name": name})
        case "POST", "/reports":
            return Asked(json={"title": "mine", "text": "text", "project": things.project})
        case "PATCH", "/reports/{report_id}":
            return Asked(json={"version": 1, "title": "other"})
        case _, "/users/{name}":
            return Asked(json={"removed": False}, params={"name": things.person})
        case "POST", "/users" | "/groups" | "/projects":
            return Asked(json={"name": name})
        case _, "/projects/{name}/secrets/{secret}":
            return Asked(json={"value": "hidden"}, params={"name": things.project})
        case "PUT", "/users/me/secrets/{secret}":
            return Asked(json={"value": "hidden"}, params={"secret": name.replace("-", "_")})
        case _, str(below) if below.startswith("/projects/{name}"):
            body: dict[str, Any] = {"role": "viewer"} if method == "PUT" else {"limits": {}}
            return Asked(json=body, params={"name": things.project, "member": things.person})
        case _, str(below) if below.startswith("/groups/{group}"):
            return Asked(params={"group": things.group, "user": things.person})
        case _, "/auth/device/{user_code}":
            return Asked(json={"approve": True}, params={"user_code": "BCDF-GHJK"})
        case "POST", "/auth/device":
            return Asked(json={"client": "a host"})
        case "POST", "/auth/device/token":
            return Asked(json={"device_code": "x" * 43})
        case "POST", "/auth/browser":
            return Asked(json={"challenge": "x" * 43})
        case "POST", "/auth/browser/token":
            return Asked(json={"code": "x" * 43, "verifier": "x" * 43, "client": "a host"})
        case "POST", "/auth/login":
            return Asked(json={})  # wrong passwords would be slowed down
        case "POST", "/auth/link":
            return Asked(json={"code": "x"})
        case "POST", "/auth/codes":
            return Asked(json={})
        case "POST", "/auth/tokens":
            return Asked(json={"name": name})
    return Asked()
