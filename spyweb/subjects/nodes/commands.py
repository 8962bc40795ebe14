"""`spyweb nodes`: list the nodes of a cluster, and change which of them run jobs."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

import typer

from spyweb.cli import output
from spyweb.cli.options import Output, project_of
from spyweb.cli.output import Format
from spyweb.subjects.nodes.views import NodeChange, NodeChanged, NodeView

DONE = {NodeChange.DRAIN: "gives its jobs to the others", NodeChange.RESUME: "takes its share of the jobs again"}


def nodes(
    context: typer.Context,
    change: Annotated[NodeChange | None, typer.Argument(show_default=False, help="What to do with a node.")] = None,
    name: Annotated[str, typer.Argument(metavar="NAME", show_default=False, help="The node's name.")] = "",
    form: Output = Format.TABLE,
) -> None:
    """List the nodes that share a PostgreSQL, or change one.

    drain has a node give its jobs to the others, and resume take its share again; a run that is under way ends where it
    is.  forget removes a node that ended from the list.  A star marks the node that answers.
    """
    daemon, now_ms = project_of(context).need_daemon(), project_of(context).clock.now_ms()
    if change:
        if not name:
            raise typer.BadParameter(f"`spyweb nodes {change} NAME`: the name of the node is missing")
        changed = daemon.ask("POST", f"/api/nodes/{quote(name, safe='')}/{change}", NodeChanged)
        output.tell(form, f"{name} {DONE.get(change, 'is forgotten')}", changed)
        return

    def row(node: NodeView) -> dict[str, str]:
        return {
            "node": f"{node.name}{'*' * node.is_me}",
            "state": f"{node.state}{', standby' * node.is_standby}",
            "jobs": str(node.jobs),
            "slots": str(node.slots),
            "beat": f"{output.rounded(now_ms - node.beat_ms)} ago",
            "version": node.version,
            "labels": " ".join(node.labels),
            "files": "differ" if node.differs else "",
            "url": node.url,
        }

    empty = "this daemon is alone on its database: nodes of a cluster share a PostgreSQL"
    output.show_list(form, daemon.ask("GET", "/api/nodes", list[NodeView]), row, empty=empty, cut=("url", "labels"))
