"""The status that each route answers, by who asks.

    nobody      sends no credential
    scraper     an API token with the scope `metrics` alone
    stranger    a member of another project
    viewer      of the project
    member      of the project, about things of a colleague
    owner       a member of the project, about their own things
    maintainer  of the project
    admin

What a viewer, a member or a maintainer asks about another project is answered as to the stranger. A
row for each route of the OpenAPI document and for each websocket (`WS`; 101: it is open). Members
may do more than read: 403 says so to a viewer, and 404 to a stranger that there is no such thing.
"""

from dataclasses import dataclass

COLUMNS = (
    "nobody", "scraper", "stranger", "viewer", "member", "owner", "maintainer", "admin",
)  # fmt: skip

TABLE = """
                                                nobody scraper stranger viewer member owner maintainer admin
GET    /training/jobs                               401     403      200    200    200   200        200   200
POST   /training/jobs                               401     403      422    403    201   201        201   201
GET    /training/jobs/groups                        401     403      200    200    200   200        200   200
GET    /training/jobs/{job_id}                      401     403      404    200    200   200        200   200
PATCH  /training/jobs/{job_id}                      401     403      404    403    200   200        200   200
DELETE /training/jobs/{job_id}                      401     403      404    403    403   202        202   202
DELETE /training/jobs/{job_id}/record               401     403      404    403    403   409        409   409
PUT    /training/jobs/{job_id}/pause                401     403      404    403    403   202        202   202
PUT    /training/jobs/{job_id}/resume               401     403      404    403    403   202        202   202
PUT    /training/jobs/{job_id}/resize               401     403      404    403    403   202        202   202
GET    /training/jobs/{job_id}/events               401     403      404    200    200   200        200   200
GET    /training/jobs/{job_id}/queue-history        401     403      404    200    200   200        200   200
GET    /training/jobs/{job_id}/logs                 401     403      404    200    200   200        200   200
GET    /training/jobs/{job_id}/logs/download        401     403      404    200    200   200        200   200
GET    /training/jobs/{job_id}/attempts             401     403      404    200    200   200        200   200
GET    /training/jobs/{job_id}/packages             401     403      404    200    200   200        200   200
GET    /training/jobs/{job_id}/provenance           401     403      404    200    200   200        200   200
GET    /training/jobs/{job_id}/code                 401     403      404    403    200   200        200   200
GET    /training/jobs/{job_id}/code.tar             401     403      404    403    200   200        200   200
GET    /training/jobs/{job_id}/code/diff            401     403      404    403    200   200        200   200
GET    /training/jobs/{job_id}/environment          401     403      404    200    200   200        200   200
GET    /training/jobs/{job_id}/data                 401     403      404    200    200   200        200   200
GET    /training/jobs/{job_id}/environment/lock     401     403      404    404    404   404        404   404
GET    /metrics/jobs/{job_id}                       401     403      404    200    200   200        200   200
WS     /metrics/stream/{job_id}                     401     403      4404    101    101   101        101   101
POST   /training/jobs/{job_id}/gradients            401     403      404    403    403   409        409   409
GET    /training/jobs/{job_id}/gradients            401     403      404    200    200   200        200   200
GET    /training/jobs/{job_id}/gradients/{step}     401     403      404    200    200   200        200   200
POST   /training/jobs/{job_id}/stacks               401     403      404    403    403   409        409   409
POST   /training/jobs/{job_id}/profile              401     403      404    403    403   409        409   409
GET    /training/jobs/{job_id}/profiles             401     403      404    200    200   200        200   200
POST   /training/jobs/{job_id}/ports/{port}/link    401     403      404    403    403   409        409   409
WS     /training/jobs/{job_id}/exec                 401     403      404    403    403   409        409   409
WS     /training/jobs/{job_id}/forward/{port}       401     403      404    403    403   409        409   409
PUT    /training/code/{sha256}                      401     403      422    403    201   200        200   200
GET    /training/code/{sha256}                      401     403      404    403    200   200        200   200
GET    /checkpoints/jobs/{job_id}                   401     403      404    200    200   200        200   200
POST   /checkpoints/jobs/{job_id}/collect           401     403      404    403    403   200        200   200
GET    /checkpoints/{checkpoint_id}                 401     403      404    200    200   200        200   200
DELETE /checkpoints/{checkpoint_id}                 401     403      404    403    403   204        204   204
PUT    /checkpoints/{checkpoint_id}/pin             401     403      404    403    403   200        200   200
DELETE /checkpoints/{checkpoint_id}/pin             401     403      404    403    403   200        200   200
POST   /checkpoints/{checkpoint_id}/verify          401     403      404    403    403   200        200   200
GET    /checkpoints/{checkpoint_id}/files           401     403      404    200    200   200        200   200
GET    /checkpoints/{checkpoint_id}/files/{path}    401     403      404    403    200   200        200   200
POST   /checkpoints/{checkpoint_id}/restore         401     403      404    403    403   202        202   202
GET    /outputs/jobs/{job_id}                       401     403      404    200    200   200        200   200
GET    /outputs/jobs/{job_id}.tar                   401     403      404    403    200   200        200   200
GET    /outputs/jobs/{job_id}/files/{path}          401     403      404    403    200   200        200   200

POST   /experiments                                 401     403      422    403    201   201        201   201
GET    /experiments                                 401     403      200    200    200   200        200   200
GET    /experiments/{experiment_id}                 401     403      404    200    200   200        200   200
DELETE /experiments/{experiment_id}                 401     403      404    403    403   202        202   202
GET    /experiments/{experiment_id}/trials          401     403      404    200    200   200        200   200
PUT    /experiments/{experiment_id}/pause           401     403      404    403    403   202        202   202
PUT    /experiments/{experiment_id}/resume          401     403      404    403    403   202        202   202
POST   /experiments/{experiment_id}/analyze         401     403      404    200    200   200        200   200
GET    /experiments/{experiment_id}/report          401     403      404    200    200   200        200   200

GET    /alerts                                      401     403      200    200    200   200        200   200
POST   /alerts                                      401     403      422    201    201   201        201   201
GET    /alerts/{alert_id}                           401     403      404    404    404   200        404   200
PATCH  /alerts/{alert_id}                           401     403      404    404    404   200        404   200
DELETE /alerts/{alert_id}                           401     403      404    404    404   204        404   204
POST   /alerts/{alert_id}/test                      401     403      404    404    404   202        404   202
GET    /alerts/{alert_id}/deliveries                401     403      404    404    404   200        404   200
WS     /alerts/stream                               401     403      101    101    101   101        101   101

GET    /reports                                     401     403      200    200    200   200        200   200
POST   /reports                                     401     403      422    403    201   201        201   201
GET    /reports/{report_id}                         401     403      404    200    200   200        200   200
PATCH  /reports/{report_id}                         401     403      404    403    200   200        200   200
DELETE /reports/{report_id}                         401     403      404    403    403   204        204   204

GET    /views                                       401     403      200    200    200   200        200   200
POST   /views                                       401     403      201    201    201   201        201   201
DELETE /views/{name}                                401     403      404    404    404   204        404   404

GET    /cluster/nodes                               401     403      200    200    200   200        200   200
POST   /cluster/nodes                               401     403      403    403    403   403        403   201
GET    /cluster/nodes/{node_id}                     401     403      200    200    200   200        200   200
PATCH  /cluster/nodes/{node_id}                     401     403      403    403    403   403        403   200
DELETE /cluster/nodes/{node_id}                     401     403      403    403    403   403        403   202
GET    /cluster/nodes/{node_id}/history             401     403      200    200    200   200        200   200
GET    /cluster/nodes/{node_id}/events              401     403      200    200    200   200        200   200
POST   /cluster/nodes/{node_id}/drain               401     403      403    403    403   403        403   200
POST   /cluster/nodes/{node_id}/undrain             401     403      403    403    403   403        403   409
GET    /cluster/gpu-status                          401     403      200    200    200   200        200   200
GET    /cluster/queue                               401     403      200    200    200   200        200   200
GET    /cluster/quotas                              401     403      200    200    200   200        200   200
POST   /cluster/what-if                             401     403      403    403    403   403        403   200
GET    /metrics/cluster/summary                     401     403      200    200    200   200        200   200
GET    /ledger                                      401     403      200    200    200   200        200   200

GET    /audit                                       401     403      403    403    403   403        200   200

POST   /auth/link                                   401     401      401    401    401   401        401   401
POST   /auth/codes                                  401     403      201    201    201   201        201   201
POST   /auth/logout                                 401     403      204    204    204   204        204   204
GET    /auth/me                                     401     403      200    200    200   200        200   200
GET    /auth/tokens                                 401     403      200    200    200   200        200   200
POST   /auth/tokens                                 401     403      201    201    201   201        201   201
DELETE /auth/tokens/{token_id}                      401     403      404    404    404   204        404   204
GET    /auth/sessions                               401     403      200    200    200   200        200   200
DELETE /auth/sessions/{session_id}                  401     403      404    404    404   204        404   404

POST   /auth/login                                  422     422      422    422    422   422        422   422
GET    /auth/methods                                200     200      200    200    200   200        200   200
POST   /auth/browser                                401     403      403    403    403   403        403   403
POST   /auth/browser/token                          401     401      401    401    401   401        401   401
POST   /auth/device                                 201     201      201    201    201   201        201   201
POST   /auth/device/token                           404     404      404    404    404   404        404   404
GET    /auth/device/{user_code}                     401     403      404    404    404   404        404   404
PUT    /auth/device/{user_code}                     401     403      403    403    403   403        403   403

GET    /users                                       401     403      200    200    200   200        200   200
POST   /users                                       401     403      403    403    403   403        403   201
PATCH  /users/{name}                                401     403      404    403    403   403        403   200
DELETE /users/{name}                                401     403      404    403    403   403        403   204
GET    /groups                                      401     403      200    200    200   200        200   200
POST   /groups                                      401     403      403    403    403   403        403   201
DELETE /groups/{group}                              401     403      404    404    404   404        404   204
GET    /groups/{group}/members                      401     403      404    404    404   404        404   200
PUT    /groups/{group}/members/{user}               401     403      404    404    404   404        404   204
DELETE /groups/{group}/members/{user}               401     403      404    404    404   404        404   404
GET    /projects                                    401     403      200    200    200   200        200   200
POST   /projects                                    401     403      403    403    403   403        403   201
GET    /projects/{name}                             401     403      404    200    200   200        200   200
PATCH  /projects/{name}                             401     403      404    403    403   403        403   200
DELETE /projects/{name}                             401     403      404    403    403   403        403   409
GET    /projects/{name}/members                     401     403      404    200    200   200        200   200
PUT    /projects/{name}/members/{member}            401     403      404    403    403   403        204   204
DELETE /projects/{name}/members/{member}            401     403      404    403    403   403        204   204
GET    /projects/{name}/secrets                     401     403      404    403    200   200        200   200
PUT    /projects/{name}/secrets/{secret}            401     403      404    403    403   403        204   204
DELETE /projects/{name}/secrets/{secret}            401     403      404    403    403   403        204   204
GET    /users/me/secrets                            401     403      200    200    200   200        200   200
PUT    /users/me/secrets/{secret}                   401     403      204    204    204   204        204   204
DELETE /users/me/secrets/{secret}                   401     403      404    404    404   204        404   404

GET    ~/metrics                                    401     200      403    403    403   403        403   200
GET    ~/healthz                                    200     200      200    200    200   200        200   200
GET    ~/readyz                                     200     200      200    200    200   200        200   200
"""  # noqa: E501
"""Paths are below /api/v1, or at the root behind `~`."""


@dataclass(frozen=True)
class Row:
    method: str
    path: str
    """With the names of its parameters in braces."""
    statuses: dict[str, int]
    """By column."""

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def rows() -> list[Row]:
    """The rows of the table."""
    header, *lines = [line.split() for line in TABLE.splitlines() if line]
    assert tuple(header) == COLUMNS
    return [_row(*line) for line in lines]


def _row(method: str, path: str, *statuses: str) -> Row:
    whole = path[1:] if path.startswith("~") else f"/api/v1{path}"
    return Row(method, whole, dict(zip(COLUMNS, map(int, statuses), strict=True)))
