"""Common parts of the routes that create a job or an experiment."""

import hashlib

from fastapi import Request, Response

from trainhall.cluster.experiments.views import Experiment
from trainhall.cluster.jobs.views import Job
from trainhall.cluster.lifecycle.creation import RequestKey


def request_key(key: str | None, body: bytes) -> RequestKey | None:
    return RequestKey(key, hashlib.sha256(body).hexdigest()) if key is not None else None


def created(request: Request, view: Job | Experiment, is_new: bool) -> Response:
    headers = {"Location": f"{request.url.path}/{view.id}"}
    if not is_new:
        headers["Idempotency-Replayed"] = "true"
    return Response(view.model_dump_json(), 201, headers, media_type="application/json")
