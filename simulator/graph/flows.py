"""Flows of an account: create, list, change, publish and delete Flows, and upload their files."""

import re
import time
from dataclasses import replace
from typing import Any

import orjson

from simulator.errors import GraphError, invalid_parameter, no_such_object
from simulator.graph.dispatch import Call, Table, text_of
from simulator.graph.fields import ARGUMENT, page, select
from simulator.graph.schema import coerced
from simulator.world.identifiers import graph_time, new_id
from simulator.world.records import Flow

_DEFAULT = ("id", "name", "status", "categories", "validation_errors")


def _fields(flow: Flow) -> dict[str, Any]:
    try:
        file = orjson.loads(flow.json or b"{}")
    except orjson.JSONDecodeError:
        file = {}
    file = file if isinstance(file, dict) else {}
    preview = f"https://business.facebook.com/wa/manage/flows/{flow.id}/preview/"
    return {
        "id": flow.id,
        "name": flow.name,
        "status": flow.status,
        "categories": flow.categories,
        "validation_errors": [],
        "json_version": file.get("version"),
        "data_api_version": file.get("data_api_version"),
        "endpoint_uri": flow.endpoint_uri,
        "preview": {"preview_url": preview, "expires_at": graph_time(time.time() + 30 * 86400)},
        "health_status": {"can_send_message": "AVAILABLE", "entities": []},
        "updated_at": graph_time(flow.updated_at),
        "data_channel_uri": flow.endpoint_uri,
        "application": None,
        "metric": None,
        "whatsapp_business_account": {"id": flow.waba_id, "name": "Business account", "timezone_id": "71"},
    }


async def create_flow(call: Call) -> dict[str, Any]:
    """POST /{waba}/flows: create a Flow."""
    account, params = call.account(), call.params()
    flow = Flow(
        id=new_id("6"),
        waba_id=account.waba_id,
        name=text_of(params, "name"),
        categories=coerced("texts", "categories", params.get("categories", [])),
        endpoint_uri=str(params["endpoint_uri"]) if "endpoint_uri" in params else None,
        json=str(params.get("flow_json", "")).encode(),
    )
    source = call.sim.state.flows.get(str(params.get("clone_flow_id", "")))
    if source is not None and source.waba_id == account.waba_id:
        flow.json = source.json
    if params.get("publish") in {True, "true"}:
        flow.status = "PUBLISHED"
    call.sim.state.flows[flow.id] = flow
    return {"id": flow.id, "success": True, "validation_errors": []}


async def list_flows(call: Call) -> dict[str, Any]:
    """GET /{waba}/flows: list the Flows."""
    account = call.account()
    found = [flow for flow in call.sim.state.flows.values() if flow.waba_id == account.waba_id]
    return page(call, found, lambda flow: flow.id, lambda flow: select(call, _fields(flow), _DEFAULT))


async def get_flow(call: Call) -> dict[str, Any]:
    """GET /{flow}: read a Flow."""
    fields, asked = _fields(_flow(call)), call.request.query.get("fields", "")
    if metric := re.search(r"(?<!\w)metric((?:\.\w+\([^()]*\))+)", asked):
        arguments = dict(ARGUMENT.findall(metric[1]))
        # The simulator does not count the customers who fill in a Flow.
        fields["metric"] = {
            "name": text_of(arguments, "name"),
            "granularity": text_of(arguments, "granularity").upper(),
            "data_points": [],
        }
    return select(call, fields, _DEFAULT)


async def update_flow(call: Call) -> dict[str, Any]:
    """POST /{flow}: change a Flow's name, categories or endpoint."""
    flow, params = _flow(call), call.params()
    flow.updated_at = time.time()
    flow.name = str(params.get("name", flow.name))
    flow.categories = coerced("texts", "categories", params.get("categories", flow.categories))
    flow.endpoint_uri = params.get("endpoint_uri", flow.endpoint_uri)
    return {"success": True}


async def delete_flow(call: Call) -> dict[str, Any]:
    """DELETE /{flow}: delete a draft. Other flows cannot be deleted."""
    flow = _flow(call)
    if flow.status != "DRAFT":
        raise GraphError(100, "Flow can't be deleted: only drafts can.")
    del call.sim.state.flows[flow.id]
    return {"success": True}


async def publish_flow(call: Call) -> dict[str, Any]:
    """POST /{flow}/publish: publish a Flow."""
    _flow(call).status = "PUBLISHED"
    return {"success": True}


async def deprecate_flow(call: Call) -> dict[str, Any]:
    """POST /{flow}/deprecate: deprecate a Flow."""
    _flow(call).status = "DEPRECATED"
    return {"success": True}


async def migrate_flows(call: Call) -> dict[str, Any]:
    """POST /{waba}/migrate_flows: copy Flows of another account by name, as drafts."""
    account, params = call.account(), call.params()
    source = call.source_account()
    own = {flow.name: flow for flow in call.sim.state.flows.values() if flow.waba_id == source.waba_id}
    names = coerced("texts", "source_flow_names", params.get("source_flow_names") or list(own))
    migrated, failed = [], []
    for name in names:
        if (flow := own.get(name)) is None:
            why = "Flows Migration Error: Flow name not found in source WABA."
            failed.append({"source_name": name, "error_code": "4233041", "error_message": why})
            continue
        copy = replace(flow, id=new_id("6"), waba_id=account.waba_id, status="DRAFT", updated_at=time.time())
        call.sim.state.flows[copy.id] = copy
        migrated.append({"source_name": name, "source_id": flow.id, "migrated_id": copy.id})
    return {"migrated_flows": migrated, "failed_flows": failed}


async def upload_asset(call: Call) -> dict[str, Any]:
    """POST /{flow}/assets: upload the Flow's file, as multipart `file`, `name` and `asset_type`."""
    flow, form = _flow(call), await call.request.post()
    file = form.get("file")
    if form.get("asset_type") != "FLOW_JSON" or file is None or isinstance(file, str | bytes | bytearray):
        raise invalid_parameter("Param asset_type must be FLOW_JSON, with a file")
    flow.json, flow.updated_at = file.file.read(), time.time()
    return {"success": True, "validation_errors": []}


async def list_assets(call: Call) -> dict[str, Any]:
    """GET /{flow}/assets: list the Flow's file."""
    flow = _flow(call)
    asset = {
        "name": "flow.json",
        "asset_type": "FLOW_JSON",
        "download_url": "https://upstream.example/flow.json",
    }
    return {"data": [asset] if flow.json else []}


def _flow(call: Call) -> Flow:
    flow = call.sim.state.flows.get(call.node)
    if flow is None:
        raise no_such_object(call.node, call.request.method)
    call.account(flow.waba_id)
    return flow


def register(table: Table) -> None:
    """Register these routes in the table."""
    table.edge("POST", "flows", create_flow)
    table.edge("GET", "flows", list_flows)
    table.edge("POST", "migrate_flows", migrate_flows)
    table.edge("POST", "publish", publish_flow)
    table.edge("POST", "deprecate", deprecate_flow)
    table.edge("POST", "assets", upload_asset)
    table.edge("GET", "assets", list_assets)
    table.streaming.add("assets")
    for method, handler in (("GET", get_flow), ("POST", update_flow), ("DELETE", delete_flow)):
        table.node(method, lambda sim, node: node in sim.state.flows, handler)
