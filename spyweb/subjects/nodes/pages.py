"""The page of the nodes of a cluster."""

from __future__ import annotations

from aiohttp import web

from spyweb.subjects.nodes.api import change_in_path
from spyweb.subjects.nodes.service import NodesService
from spyweb.web.access.principal import Right
from spyweb.web.pages.page import Action, Asked, DashboardPage, PagePart, Shown, lead_to


@DashboardPage("nodes", "nodes.html", place="settings", parts={"nodes-now": PagePart("nodes_now.html", ("health",))})
async def show_nodes(asked: Asked) -> Shown:
    """Show the nodes of the cluster, with their shares of the jobs."""
    return Shown(title="Nodes", values={"nodes": await asked.services[NodesService].list()})


@Action("nodes/{name}/{change}", right=Right.ADMIN)
async def change_node(asked: Asked) -> web.Response:
    """Drain a node, or resume it; forget one that ended."""
    await asked.services[NodesService].change(asked.request.match_info["name"], change_in_path(asked.request))
    return lead_to(asked.to("nodes"))
