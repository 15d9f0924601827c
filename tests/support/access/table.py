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

Rows that end in `open` are of routes that do not look at the caller yet; they are not tested.
"""

from dataclasses import dataclass

COLUMNS = (
    "nobody", "scraper", "stranger", "viewer", "member", "owner", "maintainer", "admin",
)  # fmt: skip

TABLE = """
                                                nobody scraper stranger viewer member owner maintainer admin
GET    /training/jobs                               401     403      200    200    200   200        200   200 open
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
GET    /metrics/jobs/{job_id}                       401     403      404    200    200   200        200   200
WS     /metrics/stream/{job_id}                     401     403      4404    101    101   101        101   101
POST   /training/jobs/{job_id}/gradients            401     403      404    403    403   409        409   409
GET    /training/jobs/{job_id}/gradients            401     403      404    200    200   200        200   200
GET    /training/jobs/{job_id}/gradients/{step}     401     403      404    200    200   200        200   200
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

POST   /experiments                                 401     403      422    403    201   201        201   201
GET    /experiments                                 401     403      200    200    200   200        200   200 open
GET    /experiments/{experiment_id}                 401     403      404    200    200   200        200   200 open
DELETE /experiments/{experiment_id}                 401     403      404    403    403   202        202   202 open
GET    /experiments/{experiment_id}/trials          401     403      404    200    200   200        200   200 open
PUT    /experiments/{experiment_id}/pause           401     403      404    403    403   202        202   202 open
PUT    /experiments/{experiment_id}/resume          401     403      404    403    403   202        202   202 open
POST   /experiments/{experiment_id}/analyze         401     403      404    200    200   200        200   200 open
GET    /experiments/{experiment_id}/report          401     403      404    200    200   200        200   200 open

GET    /alerts                                      401     403      200    200    200   200        200   200 open
POST   /alerts                                      401     403      422    201    201   201        201   201 open
GET    /alerts/{alert_id}                           401     403      404    404    404   200        404   200 open
PATCH  /alerts/{alert_id}                           401     403      404    404    404   200        404   200 open
DELETE /alerts/{alert_id}                           401     403      404    404    404   204        404   204 open
POST   /alerts/{alert_id}/test                      401     403      404    404    404   202        404   202 open
GET    /alerts/{alert_id}/deliveries                401     403      404    404    404   200        404   200 open
WS     /alerts/stream                               401     403      101    101    101   101        101   101 open

GET    /reports                                     401     403      200    200    200   200        200   200 open
POST   /reports                                     401     403      422    403    201   201        201   201 open
GET    /reports/{report_id}                         401     403      404    200    200   200        200   200 open
PATCH  /reports/{report_id}                         401     403      404    403    200   200        200   200 open
DELETE /reports/{report_id}                         401     403      404    403    403   204        204   204 open

GET    /views                                       401     403      200    200    200   200        200   200
POST   /views                                       401     403      201    201    201   201        201   201
DELETE /views/{name}                                401     403      404    404    404   204        404   404

GET    /cluster/nodes                               401     403      200    200    200   200        200   200 open
POST   /cluster/nodes                               401     403      403    403    403   403        403   201 open
GET    /cluster/nodes/{node_id}                     401     403      200    200    200   200        200   200 open
PATCH  /cluster/nodes/{node_id}                     401     403      403    403    403   403        403   200 open
DELETE /cluster/nodes/{node_id}                     401     403      403    403    403   403        403   202 open
GET    /cluster/nodes/{node_id}/history             401     403      200    200    200   200        200   200 open
GET    /cluster/nodes/{node_id}/events              401     403      200    200    200   200        200   200 open
POST   /cluster/nodes/{node_id}/drain               401     403      403    403    403   403        403   200 open
POST   /cluster/nodes/{node_id}/undrain             401     403      403    403    403   403        403   200 open
GET    /cluster/gpu-status                          401     403      200    200    200   200        200   200 open
GET    /cluster/queue                               401     403      200    200    200   200        200   200 open
GET    /cluster/quotas                              401     403      200    200    200   200        200   200 open
POST   /cluster/what-if                             401     403      200    200    200   200        200   200 open
GET    /metrics/cluster/summary                     401     403      200    200    200   200        200   200 open
GET    /ledger                                      401     403      200    200    200   200        200   200 open

GET    /audit                                       401     403      403    403    403   403        200   200

POST   /auth/link                                   401     403      401    401    401   401        401   401
POST   /auth/codes                                  401     403      201    201    201   201        201   201 open
POST   /auth/logout                                 401     403      204    204    204   204        204   204
GET    /auth/me                                     401     403      200    200    200   200        200   200
GET    /auth/tokens                                 401     403      200    200    200   200        200   200
POST   /auth/tokens                                 401     403      201    201    201   201        201   201 open
DELETE /auth/tokens/{token_id}                      401     403      404    404    404   204        404   204
GET    /auth/sessions                               401     403      200    200    200   200        200   200
DELETE /auth/sessions/{session_id}                  401     403      404    404    404   204        404   404

POST   /auth/login                                  401     403      401    401    401   401        401   401 open
GET    /auth/methods                                200     200      200    200    200   200        200   200 open
POST   /auth/browser                                401     403      201    201    201   201        201   201 open
POST   /auth/browser/token                          401     403      401    401    401   401        401   401 open
POST   /auth/device                                 201     201      201    201    201   201        201   201 open
POST   /auth/device/token                           401     403      401    401    401   401        401   401 open
GET    /auth/device/{user_code}                     401     403      404    404    404   404        404   404 open
PUT    /auth/device/{user_code}                     401     403      404    404    404   404        404   404 open

GET    /users                                       401     403      200    200    200   200        200   200 open
POST   /users                                       401     403      403    403    403   403        403   201 open
PATCH  /users/{name}                                401     403      403    403    403   403        403   200 open
DELETE /users/{name}                                401     403      403    403    403   403        403   204 open
GET    /groups                                      401     403      200    200    200   200        200   200 open
POST   /groups                                      401     403      403    403    403   403        403   201 open
DELETE /groups/{group}                              401     403      403    403    403   403        403   204 open
GET    /groups/{group}/members                      401     403      200    200    200   200        200   200 open
PUT    /groups/{group}/members/{user}               401     403      403    403    403   403        403   204 open
DELETE /groups/{group}/members/{user}               401     403      403    403    403   403        403   204 open
GET    /projects                                    401     403      200    200    200   200        200   200 open
POST   /projects                                    401     403      403    403    403   403        403   201 open
GET    /projects/{name}                             401     403      404    200    200   200        200   200 open
PATCH  /projects/{name}                             401     403      404    403    403   403        200   200 open
DELETE /projects/{name}                             401     403      404    403    403   403        403   409 open
GET    /projects/{name}/members                     401     403      404    200    200   200        200   200 open
PUT    /projects/{name}/members/{member}            401     403      404    403    403   403        204   204 open
DELETE /projects/{name}/members/{member}            401     403      404    403    403   403        204   204 open

GET    ~/metrics                                    401     200      403    403    403   403        403   200 open
GET    ~/healthz                                    200     200      200    200    200   200        200   200
GET    ~/readyz                                     200     403      200    200    200   200        200   200
"""  # noqa: E501
"""Paths are below /api/v1, or at the root behind `~`."""


@dataclass(frozen=True)
class Row:
    method: str
    path: str
    """With the names of its parameters in braces."""
    statuses: dict[str, int]
    """By column."""
    is_open: bool
    """True: the route does not look at the caller yet."""

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def rows() -> list[Row]:
    """The rows of the table."""
    header, *lines = [line.split() for line in TABLE.splitlines() if line]
    assert tuple(header) == COLUMNS
    return [_row(*line) for line in lines]


def _row(method: str, path: str, *cells: str) -> Row:
    statuses, mark = cells[: len(COLUMNS)], cells[len(COLUMNS) :]
    assert len(statuses) == len(COLUMNS), (method, path)
    assert mark in ((), ("open",)), (method, path, mark)
    whole = path[1:] if path.startswith("~") else f"/api/v1{path}"
    by_column = dict(zip(COLUMNS, map(int, statuses), strict=True))
    return Row(method, whole, by_column, bool(mark))
