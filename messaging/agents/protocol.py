"""The Model Context Protocol through its official package. Each HTTP exchange stands alone, without a session.

Importing the package takes much memory and CPU, so a process imports it at an agent's first call.
"""

import asyncio
import logging
from contextvars import ContextVar
from functools import cache
from itertools import islice
from typing import Any, NamedTuple

import mcp_types as types
import orjson
from asgiref.sync import async_to_sync, sync_to_async
from django.conf import settings
from django.http import HttpRequest
from jsonschema import Draft202012Validator
from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError

from gateway.api.limits import API_BODY_BYTES
from gateway.guides import documentation
from gateway.monitoring.logs import type_alone
from messaging.agents.api_calls import ApiCalls, Refused
from messaging.agents.tools import BY_NAME, PROMPT_BY_NAME, PROMPTS, TOOLS, AgentTool

GUIDES = "guide:///"
SHOWN_PROBLEMS = 10
"""Maximum number of problems of a tool's arguments that are reported. The validator then stops, because a list can have
a million invalid items.
"""
IDEMPOTENT = frozenset({"send_message"})
"""Tools that accept an idempotency key."""
_INSTRUCTIONS = (
    "A gateway to WhatsApp. The connection or key decides where messages go: in test to a simulated sandbox, in live "
    "to real people. Search the documentation first; ask the person before you send or replay."
)
_api: ContextVar[ApiCalls] = ContextVar("agent_api")
# At its usual level the package logs a line for each exchange, which the request log already has.
logging.getLogger("mcp").setLevel(logging.WARNING)


class Exchanged(NamedTuple):
    """An HTTP answer."""

    status: int
    content_type: str
    body: bytes

    def __repr__(self) -> str:
        return type_alone(self)


def exchange(request: HttpRequest, api: ApiCalls) -> Exchanged:
    """Answer one POST. The tools run on the calling thread and use the thread's database connection."""
    token = _api.set(api)
    try:
        return async_to_sync(_exchange)(request)
    finally:
        _api.reset(token)


async def _exchange(request: HttpRequest) -> Exchanged:
    manager = StreamableHTTPSessionManager(
        app=_server(),
        stateless=True,
        json_response=True,
        max_request_body_size=API_BODY_BYTES,
    )
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "path": request.path,
        "query_string": b"",
        "headers": [
            (name.lower().encode(), value.encode("latin-1", "replace"))
            for name, value in request.headers.items()
        ],
    }
    body = request.body
    is_read = False
    status, content_type, parts = 500, "application/json", []

    async def receive() -> dict[str, Any]:
        nonlocal is_read
        if is_read:
            # A Django view cannot detect that its client has left, so this reports no disconnect.
            await asyncio.Event().wait()
        is_read = True
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        nonlocal status, content_type
        if message["type"] == "http.response.start":
            status = message["status"]
            content_type = dict(message["headers"]).get(b"content-type", b"application/json").decode()
        else:
            parts.append(message.get("body", b""))

    async with manager.run():
        await manager.handle_request(scope, receive, send)
    return Exchanged(status, content_type, b"".join(parts))


@cache
def _server() -> Server[Any]:
    return Server(
        settings.SERVICE_NAME,
        title=f"{settings.SERVICE_NAME}: WhatsApp for your business",
        website_url=f"{settings.BASE_URL}/docs/agents/",
        version=settings.API_VERSION,
        instructions=_INSTRUCTIONS,
        on_list_tools=_list_tools,
        on_call_tool=_call_tool,
        on_list_resources=_list_resources,
        on_read_resource=_read_resource,
        on_list_prompts=_list_prompts,
        on_get_prompt=_get_prompt,
    )


async def _list_tools(_: Any, __: Any) -> types.ListToolsResult:
    may_change = _api.get().may_change
    return types.ListToolsResult(tools=[_shown(tool) for tool in TOOLS if may_change or not tool.changes])


def _shown(tool: AgentTool) -> types.Tool:
    hints = types.ToolAnnotations(
        title=tool.title,
        read_only_hint=not tool.changes,
        destructive_hint=tool.is_destructive,
        idempotent_hint=tool.name in IDEMPOTENT,
        # The guides are a closed set of texts. All other tools return texts that anybody may have written.
        open_world_hint=tool.name != "search_docs",
    )
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.schema,
        output_schema=tool.output_schema,
        annotations=hints,
    )


async def _list_prompts(_: Any, __: Any) -> types.ListPromptsResult:
    return types.ListPromptsResult(
        prompts=[
            types.Prompt(
                name=prompt.name,
                title=prompt.title,
                description=prompt.description,
                arguments=[
                    types.PromptArgument(name=name, description=description, required=True)
                    for name, description in prompt.arguments.items()
                ],
            )
            for prompt in PROMPTS
        ]
    )


async def _get_prompt(_: Any, params: types.GetPromptRequestParams) -> types.GetPromptResult:
    prompt = PROMPT_BY_NAME.get(params.name)
    if prompt is None:
        raise MCPError(types.INVALID_PARAMS, f"There is no prompt {params.name[:60]!r}.")
    given = params.arguments or {}
    if given.keys() != prompt.arguments.keys():
        wanted = ", ".join(prompt.arguments) or "none"
        raise MCPError(types.INVALID_PARAMS, f"The arguments of {prompt.name} are: {wanted}.")
    text = prompt.text.format(**given)
    message = types.PromptMessage(role="user", content=types.TextContent(type="text", text=text))
    return types.GetPromptResult(description=prompt.description, messages=[message])


async def _call_tool(_: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    tool = BY_NAME.get(params.name)
    if tool is None:
        raise MCPError(types.INVALID_PARAMS, f"There is no tool {params.name[:60]!r}.")
    given = params.arguments or {}
    problems = [
        f"{'/'.join(map(str, error.absolute_path)) or 'arguments'}: {error.message[:200]}"
        for error in islice(_validator(tool.name).iter_errors(given), SHOWN_PROBLEMS)
    ]
    if problems:
        return _result({"error": {"code": "invalid_request", "message": " ".join(problems)}}, is_error=True)
    try:
        return _result(await sync_to_async(tool.run)(_api.get(), given))
    except Refused as refused:
        return _result(refused.body, is_error=True)


@cache
def _validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(BY_NAME[name].schema)


def _result(answer: Any, *, is_error: bool = False) -> types.CallToolResult:
    text = orjson.dumps(answer).decode()
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)], structured_content=answer, is_error=is_error
    )


async def _list_resources(_: Any, __: Any) -> types.ListResourcesResult:
    found = await sync_to_async(lambda: list(documentation.guides()))()
    return types.ListResourcesResult(
        resources=[
            types.Resource(
                uri=f"{GUIDES}{guide.name}", name=guide.name, title=guide.title, mime_type="text/markdown"
            )
            for guide in found
        ]
    )


async def _read_resource(_: Any, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
    uri = str(params.uri)
    found = (
        await sync_to_async(documentation.guide)(uri.removeprefix(GUIDES)) if uri.startswith(GUIDES) else None
    )
    if found is None:
        raise MCPError(types.INVALID_PARAMS, "There is no such guide: list the resources.")
    return types.ReadResourceResult(
        contents=[types.TextResourceContents(uri=uri, mime_type="text/markdown", text=found.text)]
    )
