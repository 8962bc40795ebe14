"""Handlers for workflows: runs of jobs with tasks, and their resources."""

from __future__ import annotations

from typing import Annotated

from aiohttp import web
from msgspec import Meta, Struct

from spyweb.subjects.workflows.service import WorkflowService
from spyweb.subjects.workflows.views import WorkflowDetail, WorkflowView
from spyweb.web.answer import json_answer
from spyweb.web.api.query import MAX_LIMIT, query_of
from spyweb.web.api.route import Right, Route
from spyweb.web.api.services import service_of


class WorkflowsQuery(Struct, frozen=True):
    """The number of runs."""

    limit: Annotated[int, Meta(ge=1, le=MAX_LIMIT)] = 30


class WorkflowQuery(Struct, frozen=True):
    """The id of a run, or the name of a workflow or a job: its newest run."""

    id: str


@Route("GET", "/api/workflows", right=Right.READ, answer=list[WorkflowView], query=WorkflowsQuery)
async def list_workflows(request: web.Request) -> web.Response:
    """List the newest runs of jobs with tasks."""
    return json_answer(await service_of(request, WorkflowService).newest(query_of(request, WorkflowsQuery).limit))


@Route("GET", "/api/workflow", right=Right.READ, answer=WorkflowDetail, query=WorkflowQuery)
async def show_workflow(request: web.Request) -> web.Response:
    """Show one run of a job with tasks, with its tasks and resources."""
    return json_answer(await service_of(request, WorkflowService).detail(query_of(request, WorkflowQuery).id))
