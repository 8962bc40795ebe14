"""Handlers for the nodes of a cluster."""

from __future__ import annotations

from aiohttp import web

from spyweb.subjects.nodes.service import NodesService
from spyweb.subjects.nodes.views import NodeChange, NodeChanged, NodeView
from spyweb.web.answer import json_answer
from spyweb.web.api.route import Right, Route
from spyweb.web.api.services import service_of


@Route("GET", "/api/nodes", right=Right.READ, answer=list[NodeView])
async def list_nodes(request: web.Request) -> web.Response:
    """List the nodes of the cluster, by name; none where this daemon is alone on its database."""
    return json_answer(await service_of(request, NodesService).list())


@Route("POST", "/api/nodes/{name}/{change}", right=Right.ADMIN, answer=NodeChanged)
async def change_node(request: web.Request) -> web.Response:
    """Have a node give its jobs to the others (`drain`), or take its share again (`resume`); `forget` one that ended.

    Another node hears of it with its next beat.  Runs that are under way end where they are.
    """
    name, change = request.match_info["name"], change_in_path(request)
    await service_of(request, NodesService).change(name, change)
    return json_answer(NodeChanged(name=name, change=change))


def change_in_path(request: web.Request) -> NodeChange:
    try:
        return NodeChange(request.match_info["change"])
    except ValueError as error:
        raise web.HTTPNotFound(text=f"expected one of {', '.join(NodeChange)}") from error
