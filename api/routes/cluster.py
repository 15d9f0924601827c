"""/cluster: nodes, devices and the queue."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Annotated

from fastapi import Query, Request, Response

from trainhall.api.addresses import join_command, join_note, pinned
from trainhall.api.bodies import read_json, unless_disconnected
from trainhall.api.login.filters import OwnerFilterDep
from trainhall.api.login.services import ServicesDep
from trainhall.api.openapi.describe import NAME_TAKEN, NODE_GOES, Operations, body
from trainhall.api.params import Cursor, Limit, NodeId
from trainhall.api.problems import invalid
from trainhall.api.schemas.nodes import (
    Drain,
    NewNode,
    NodeChange,
    NodeEvents,
    NodeHistory,
    RegisteredNode,
)
from trainhall.api.schemas.times import Time
from trainhall.api.schemas.what_if import Question
from trainhall.cluster.nodes.service import UNCHANGED
from trainhall.cluster.nodes.views import DevicePage, Node, NodePage
from trainhall.cluster.pagination import page_of
from trainhall.cluster.scheduling.views import QueuePage, QuotaPage
from trainhall.cluster.what_if.views import WhatIf
from trainhall.monitoring import devices

router = Operations(prefix="/cluster", tags=["cluster"])


@router.operation("GET", "/nodes", summary="List nodes", answer="A page of nodes.")
async def list_nodes(services: ServicesDep, limit: Limit = 1000, cursor: Cursor = None) -> NodePage:
    """By name, each with its devices and what they do."""
    return await services.nodes.list(limit=limit, cursor=cursor)


@router.operation(
    "POST",
    "/nodes",
    NAME_TAKEN,
    invalid("name", "gpu 07", "may hold letters, digits, '.', '_' and '-'"),
    summary="Add a node",
    answer="The command with which the host joins.",
    status=201,
    reads=body(
        NewNode,
        {"named": {"name": "gpu-07", "labels": {"rack": "b"}}, "unnamed": {}},
        required=False,
    ),
)
async def register_node(
    services: ServicesDep, request: Request, response: Response
) -> RegisteredNode:
    """Makes a join token, which works once, and the command to run on the host. The name of a
    node without heartbeats registers that node again, for a host that lost its credential."""
    wanted = await read_json(request, NewNode)
    node = await services.nodes.register(wanted.name, wanted.labels)
    token = await asyncio.to_thread(pinned, request, node.join_token)
    node = replace(node, join_token=token)
    response.headers["Location"] = f"{request.url.path}/{node.id}"
    response.headers["Cache-Control"] = "no-store"
    command = join_command(request, node.join_token)
    return RegisteredNode.of(node, command=command, note=join_note(request))


@router.operation("GET", "/nodes/{node_id}", summary="Read a node", answer="The node.")
async def get_node(services: ServicesDep, node_id: NodeId) -> Node:
    """Includes its state, its devices and their use."""
    return await services.nodes.get(node_id)


@router.operation(
    "GET",
    "/nodes/{node_id}/history",
    summary="Read a node's device history",
    answer="The history.",
)
async def read_node_history(
    services: ServicesDep,
    node_id: NodeId,
    since: Annotated[Time | None, Query(description="Default: one hour before `until`.")] = None,
    until: Annotated[Time | None, Query(description="Default: now.")] = None,
    max_points: Annotated[
        int, Query(ge=1, le=6000, description="At most this many points per device.")
    ] = 240,
) -> NodeHistory:
    """One point for each half minute of the last two days, or fewer that stand for more time."""
    await services.nodes.check(node_id)
    end = until or services.unlimited.clock.now()
    try:
        begin = since or end - timedelta(hours=1)
    except OverflowError:
        raise invalid("until", str(until), "is too early; give a later time") from None
    items = await devices.read_history(services.unlimited.db, node_id, begin, end, max_points)
    return NodeHistory(items=items)


@router.operation(
    "GET",
    "/nodes/{node_id}/events",
    summary="List a node's events",
    answer="The node's latest events.",
)
async def list_node_events(services: ServicesDep, node_id: NodeId) -> NodeEvents:
    """Lists its states, each with a reason and a time, and the requests of users."""
    return NodeEvents(items=await services.nodes.events(node_id))


@router.operation(
    "PATCH",
    "/nodes/{node_id}",
    invalid("labels.rack", "a\nb", "may not hold control characters or line breaks"),
    summary="Change a node",
    answer="The node.",
    reads=body(
        NodeChange,
        {
            "labels": {"labels": {"rack": "c", "gpu": None}},
            "projects": {"projects": ["vision"]},
        },
        required=True,
    ),
)
async def change_node(services: ServicesDep, node_id: NodeId, request: Request) -> Node:
    """Changes its labels, or the projects whose jobs it gets. What is not named stays as it is, and
    jobs that run there stay."""
    change = await read_json(request, NodeChange)
    projects = change.projects if "projects" in change.model_fields_set else UNCHANGED
    return await services.nodes.change(node_id, labels=change.labels, projects=projects)


@router.operation(
    "POST",
    "/nodes/{node_id}/drain",
    invalid("reason", "", "must have at least 1 character"),
    summary="Drain a node",
    answer="It gets no new work; it is `drained` once nothing runs on it.",
    reads=body(Drain, {"reason": {"reason": "new disk on Friday"}, "none": {}}, required=False),
)
async def drain_node(services: ServicesDep, node_id: NodeId, request: Request) -> Node:
    """Moves its jobs to other nodes, from a saved checkpoint. The node stays drained, over
    restarts and losses, until a user ends the drain. Draining it again only updates the reason,
    if one is given."""
    wanted = await read_json(request, Drain)
    return await services.nodes.drain(node_id, wanted.reason)


@router.operation(
    "POST",
    "/nodes/{node_id}/undrain",
    NODE_GOES,
    summary="Undrain a node",
    answer="The node.",
)
async def undrain_node(services: ServicesDep, node_id: NodeId) -> Node:
    """Ends a drain by a user, or a quarantine. Has no effect on other nodes."""
    return await services.nodes.undrain(node_id)


@router.operation(
    "DELETE",
    "/nodes/{node_id}",
    summary="Remove a node",
    answer="It gets no new work and is removed once nothing runs on it.",
    status=202,
    also={204: {"description": "Removed."}},
    response_model=Node,
)
async def remove_node(services: ServicesDep, node_id: NodeId) -> Node | Response:
    """Moves its jobs to other nodes first, from a saved checkpoint.

    A node that is lost or never joined is removed at once.
    """
    view = await services.nodes.remove(node_id)
    return Response(status_code=204) if view is None else view


@router.operation("GET", "/gpu-status", summary="List devices", answer="A page of devices.")
async def list_devices(
    services: ServicesDep, limit: Limit = 1000, cursor: Cursor = None
) -> DevicePage:
    """The GPUs and CPU slots of all nodes, and which job holds each."""
    items, next_cursor = page_of("devices", await services.nodes.devices(), limit, cursor)
    return DevicePage(items=items, next_cursor=next_cursor)


@router.operation("GET", "/queue", summary="Read the queue", answer="A page of the queue.")
async def read_queue(
    services: ServicesDep,
    of: OwnerFilterDep,
    limit: Limit = 1000,
    cursor: Cursor = None,
    job_id: Annotated[
        str | None, Query(max_length=32, description="Only this job, if it waits.")
    ] = None,
    history: Annotated[
        bool, Query(description="With at most 24 positions of each job over time.")
    ] = False,
    history_since: Annotated[
        Time | None,
        Query(description="Of these positions only those that have begun or ended since then."),
    ] = None,
) -> QueuePage:
    """Waiting jobs, the next one first: what each waits for, and when it is expected to start."""
    return await services.queue.list(
        limit=limit, cursor=cursor, job_id=job_id, history=history, history_since=history_since,
        of=of,
    )  # fmt: skip


@router.operation("GET", "/quotas", summary="Read the quotas", answer="A page of quotas.")
async def read_quotas(
    services: ServicesDep, limit: Limit = 1000, cursor: Cursor = None
) -> QuotaPage:
    """Lists the device limit and the present use of each project and user that holds devices,
    waits for some or has a quota of its own."""
    quotas = await services.quotas.list()
    items, next_cursor = page_of("quotas", quotas.items, limit, cursor)
    return QuotaPage(items=items, next_cursor=next_cursor, others=quotas.others)


@router.operation(
    "POST",
    "/what-if",
    invalid("remove", "gpu-09", "there is no such node in service; there are: gpu-01, gpu-02"),
    summary="Replay the recorded queue on another cluster",
    answer="Waits before and after the changes; nothing is changed.",
    reads=body(
        Question,
        {
            "hardware": {"days": 30, "add": [{"nodes": 2, "devices": 8}]},
            "quotas": {"quotas": {"projects": {"vision": 8}}},
            "priorities": {"priorities": {"users": {"maria": 10}}},
        },
        required=False,
    ),
)
async def ask_what_if(services: ServicesDep, request: Request) -> WhatIf:
    """The scheduler itself replays the jobs of the last days, on the cluster as it is and with the
    changes. Takes seconds with thousands of jobs, and ends if the client closes the connection."""
    question = await read_json(request, Question)
    comparison = services.what_if.compare(question.change(), question.days)
    return await unless_disconnected(request, comparison)
