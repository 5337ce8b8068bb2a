"""The tools and suggested prompts for agents. A tool has a purpose, arguments and a function that calls `/v1`."""

import re
from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from gateway.api.query import phone_digits
from gateway.guides import documentation
from gateway.meta_errors import ErrorCode, error_code
from messaging.agents.api_calls import ApiCalls, File, Refused
from messaging.batches.body import MAX_BODY_BYTES
from messaging.sending.outbound import is_user_id, lacks_country_code

Arguments = Mapping[str, Any]
Schema = dict[str, Any]

MOST_RECIPIENTS = 1_000
MOST_ITEMS = 50
SHOWN_SECTIONS = 5
SHOWN_CHARACTERS = 2_000
SHOWN_ENDPOINTS = 5
MOST_PAGES = 5
"""Maximum number of pages of deliveries that are read for one answer."""


@dataclass(frozen=True, kw_only=True)
class AgentTool:
    """A tool. `run` gets arguments that match the schema, and raises `Refused` when the API rejects a call."""

    name: str
    title: str
    """The name that a client shows to people."""
    description: str
    properties: Schema
    required: tuple[str, ...] = ()
    output: Schema
    """The properties that an answer can have."""
    changes: bool = False
    is_destructive: bool = False
    """Whether the effect cannot be undone, such as a message to a customer."""
    run: Callable[[ApiCalls, Arguments], Any]

    @property
    def schema(self) -> Schema:
        """The JSON schema of the arguments."""
        return {
            "type": "object",
            "properties": self.properties,
            "required": list(self.required),
            "additionalProperties": False,
        }

    @property
    def output_schema(self) -> Schema:
        """The JSON schema of a successful answer."""
        return {"type": "object", "properties": self.output}


def _text(description: str, longest: int = 255) -> Schema:
    return {"type": "string", "minLength": 1, "maxLength": longest, "description": description}


_LIMIT: Schema = {
    "type": "integer",
    "minimum": 1,
    "maximum": MOST_ITEMS,
    "description": "How many; 20 by default.",
}
_FROM = _text("The start of the range, in ISO 8601, e.g. 2026-11-22T09:00:00Z.", 40)
_TO = _text("The end of the range, in ISO 8601.", 40)
_CONFIRM: Schema = {"type": "boolean", "description": "Set to true to do it. Ask the person first."}
_TYPES: Schema = {
    "type": "array",
    "items": _text("An event type."),
    "maxItems": 30,
    "description": "Only events of these types.",
}


_PAGE: Schema = {
    "data": {"type": "array", "items": {"type": "object"}},
    "next_cursor": {"type": ["string", "null"]},
}
_OBJECT: Schema = {"type": "object"}
_ENVIRONMENT: Schema = {"enum": ["live", "test"]}
_WHAT_TO_DO: Schema = {"type": "string", "description": "What has to happen before the action is done."}


def _search_docs(api: ApiCalls, given: Arguments) -> Any:
    question = given["question"]
    codes = [code for number in re.findall(r"\d{1,9}", question) if (code := error_code(int(number)))]
    found = documentation.search(question, most=SHOWN_SECTIONS)
    return {
        "whatsapp_errors": [_explained(code) for code in dict.fromkeys(codes)],
        "sections": [
            {"guide": f"guide:///{each.guide}", "heading": each.heading, "text": each.text[:SHOWN_CHARACTERS]}
            for each in found
        ],
    }


def _explained(code: ErrorCode) -> Any:
    return {
        "code": code.name,
        "title": code.title,
        "cause": code.cause,
        "repair": code.repair,
        "call_again": code.again,
        "doc_url": code.doc_url,
        "meta_page": code.page,
    }


def _send_message(api: ApiCalls, given: Arguments) -> Any:
    if short := next(filter(lacks_country_code, given["to"]), None):
        raise _refused(
            400, "invalid_request", f"Write {short} with + and its country code. Nothing was sent."
        )
    # One message for each customer, however the number is written.
    by_customer: dict[str, str] = {}
    for each in given["to"]:
        by_customer.setdefault(phone_digits(each) or each, each)
    recipients = list(by_customer.values())
    content = dict(given["message"])
    if len(recipients) > 1 and not given.get("confirm"):
        return {
            "sent": False,
            "recipients": len(recipients),
            "environment": api.environment,
            "what_to_do": "Ask the person whether all of them should get it, then call again with confirm: true.",
        }
    number = given.get("from") or _only_number(api)
    addressed = [_addressed(recipient, content) for recipient in recipients]
    key = given["idempotency_key"]
    client_ref = f"mcp:{api.environment}:{key}"
    is_single = len(recipients) == 1
    if api.is_batch(client_ref=client_ref) if is_single else api.is_used(idempotency_key=key):
        # A repeat is recognised as a message or as a batch, so nothing else compares the two.
        message = "Nothing was sent: this idempotency_key belongs to a call with other recipients."
        raise _refused(422, "idempotency_conflict", message)
    if is_single:
        sent = api.send({"from": number, **addressed[0]}, idempotency_key=key)
        return {"environment": api.environment, "answer": sent}
    if len(recipients) * len(orjson.dumps(content)) > MAX_BODY_BYTES:
        # The API refuses such a batch too, but only after it was built, and it can be a thousand times as large.
        message = f"The message is too large for {len(recipients)} recipients."
        raise _refused(413, "payload_too_large", message)
    body = {"from": number, "client_ref": client_ref, "messages": addressed}
    batch = api.post("batches", body=body)
    if not batch.get("same_messages", True):
        message = (
            f"Nothing was sent: this idempotency_key belongs to {batch['id']}, which has other messages."
        )
        raise _refused(422, "idempotency_conflict", message)
    return {"environment": api.environment, "batch": batch}


def _addressed(recipient: str, content: Arguments) -> dict[str, Any]:
    return {**content, ("recipient" if is_user_id(recipient) else "to"): recipient}


def _only_number(api: ApiCalls) -> str | None:
    """The number to send from when the caller names none: the only connected number.

    None when no number or several numbers are connected. The API then asks the caller for a number.
    """
    connected = api.connected_numbers()
    return connected[0] if len(connected) == 1 else None


def _get_message(api: ApiCalls, given: Arguments) -> Any:
    return api.get("message", {"message_id": given["message_id"]})


def _find_messages(api: ApiCalls, given: Arguments) -> Any:
    return api.get("messages", **{"limit": 20, **given})


def _find_events(api: ApiCalls, given: Arguments) -> Any:
    return api.get("events", **{"limit": 20, **given})


def _get_event(api: ApiCalls, given: Arguments) -> Any:
    return api.get("event", {"event_id": given["event_id"]})


def _why_endpoint_fails(api: ApiCalls, given: Arguments) -> Any:
    """The health and the newest failed deliveries of one endpoint, or of several endpoints if no id is given."""
    if "endpoint_id" in given:
        return {"endpoints": [_diagnosis(api, given["endpoint_id"])]}
    listed = api.get("webhooks", limit=SHOWN_ENDPOINTS)["data"]
    return {"endpoints": [_diagnosis(api, each["id"]) for each in listed]}


def _diagnosis(api: ApiCalls, endpoint_id: str) -> Any:
    endpoint = api.get("webhook", {"endpoint_id": endpoint_id})
    newest = [
        delivery
        for status in ("failed", "dead")
        for delivery in _newest_deliveries(api, endpoint_id=endpoint_id, status=status)
    ]
    attempts = api.get("webhook-delivery", {"delivery_id": newest[0]["id"]})["attempt_log"] if newest else []
    return {
        "why": _why(endpoint),
        "endpoint": endpoint,
        "failed_deliveries": newest,
        "newest_attempts": attempts[-3:],
    }


def _newest_deliveries(api: ApiCalls, **filters: Any) -> list[Any]:
    """The newest deliveries that match. Reads up to `MOST_PAGES` pages, because the first pages can be empty."""
    for _ in range(MOST_PAGES):
        page = api.get("webhook-deliveries", **filters, limit=3)
        if page["data"] or page["next_cursor"] is None:
            break
        filters["cursor"] = page["next_cursor"]
    found: list[Any] = page["data"]
    return found


def _why(endpoint: Any) -> str:
    """One sentence with the endpoint's state, its health and the cause of a failure."""
    health = endpoint["health"]
    reason = health["reason"] or {"error": None, "http_status": None}
    cause = f"HTTP {reason['http_status']}" if reason["http_status"] else reason["error"]
    waiting = f"{health['waiting']['count']} deliveries wait"
    if endpoint["status"] != "active":
        return f"The endpoint is {endpoint['status']}, so nothing is sent to it; {waiting}."
    if health["state"] == "healthy":
        return f"The last attempt succeeded; {waiting}."
    failed = f"It has failed since {health['since']}" + (f", the last time with {cause}." if cause else ".")
    if health["retry_at"] is None:
        return f"{failed} No attempt is planned; {waiting}."
    planned = "Nothing is sent before" if health["state"] == "circuit_open" else "The next attempt is at"
    return f"{failed} {planned} {health['retry_at']}; {waiting}."


def _replay(api: ApiCalls, given: Arguments) -> Any:
    wanted = {name: value for name, value in given.items() if name not in {"endpoint_id", "confirm"}}
    path = {"endpoint_id": given["endpoint_id"]}
    if given.get("confirm"):
        return api.post("webhook-replay", path, body=wanted)
    preview = api.post("webhook-replay", path, body={**wanted, "preview": True})
    instruction = (
        "Nothing was queued. Tell the person the number of deliveries, then call again with confirm: true."
    )
    return {"preview": preview, "what_to_do": instruction}


def _list_templates(api: ApiCalls, given: Arguments) -> Any:
    return api.get("templates", **{"limit": 20, **given})


def _get_template(api: ApiCalls, given: Arguments) -> Any:
    return api.get("template", {"template_id": given["template_id"]})


def _submit_template(api: ApiCalls, given: Arguments) -> Any:
    return api.post("templates", body={**given["template"], **_without_none(waba_id=given.get("waba_id"))})


def _upload_media(api: ApiCalls, given: Arguments) -> Any:
    try:
        content = b64decode(given["content_base64"], validate=True)
    except ValueError:
        raise _refused(400, "invalid_request", "content_base64 is not base64.") from None
    number = given.get("from") or _only_number(api)
    file = File(given["filename"], given["content_type"], content)
    return api.upload("media", fields=_without_none(**{"from": number}), file=file)


def _media_info(api: ApiCalls, given: Arguments) -> Any:
    return api.get("media-one", {"media_id": given["media_id"]}, meta="true")


def _customer_window(api: ApiCalls, given: Arguments) -> Any:
    number = given.get("phone_number_id") or _only_number(api)
    if number is None:
        message = "There are several numbers, or none: name phone_number_id. numbers_health lists them."
        raise _refused(400, "invalid_request", message)
    path = {"phone_number_id": number, "customer_id": given["customer"].removeprefix("+")}
    return api.get("customer", path)


def _refused(status: int, code: str, message: str) -> Refused:
    return Refused(status, {"error": {"code": code, "message": message}})


def _without_none(**values: str | None) -> dict[str, str]:
    return {name: value for name, value in values.items() if value is not None}


def _numbers_health(api: ApiCalls, given: Arguments) -> Any:
    if "phone_number_id" in given:
        return api.get("number-health", {"phone_number_id": given["phone_number_id"]})
    return api.get("numbers")


def _write_as_test_customer(api: ApiCalls, given: Arguments) -> Any:
    return api.post("test-inbound", body=given)


TOOLS: tuple[AgentTool, ...] = (
    AgentTool(
        name="search_docs",
        title="Search the documentation",
        description="Search this service's documentation, for example for sending, webhooks, errors or batches.",
        properties={"question": _text("The words to search for.", 400)},
        required=("question",),
        output={
            "whatsapp_errors": {"type": "array", "items": _OBJECT},
            "sections": {"type": "array", "items": _OBJECT},
        },
        run=_search_docs,
    ),
    AgentTool(
        name="send_message",
        title="Send a WhatsApp message",
        description="Send a WhatsApp message. With a test key the message goes to the sandbox. With a live key it "
        "reaches real people, so ask the user first. Several recipients need confirm: true.",
        properties={
            "to": {
                "type": "array",
                "items": _text(
                    "A phone number with + and its country code, or a business-scoped user id.", 100
                ),
                "minItems": 1,
                "maxItems": MOST_RECIPIENTS,
                "description": "Who gets the message.",
            },
            "message": {
                "type": "object",
                "required": ["type"],
                "not": {"anyOf": [{"required": ["to"]}, {"required": ["recipient"]}, {"required": ["from"]}]},
                "description": 'The message without to and from, e.g. {"type": "text", "text": {"body": "Hello"}} or '
                '{"type": "template", "template": {"name": "order", "language": {"code": "en"}}}.',
            },
            "from": _text("The id of the sending number. Leave it out when there is only one number.", 64),
            "idempotency_key": {
                "type": "string",
                "pattern": "^[!-~]{1,200}$",
                "description": "Your own name for this send, without blanks. Repeating the same call within 24 hours "
                "sends nothing. Give every other send another name.",
            },
            "confirm": _CONFIRM,
        },
        required=("to", "message", "idempotency_key"),
        changes=True,
        output={
            "environment": _ENVIRONMENT,
            "answer": {"type": "object", "description": "WhatsApp's answer; messages[0].id is the wamid."},
            "batch": {"type": "object", "description": "The batch, for more than one recipient."},
            "sent": {"const": False},
            "recipients": {"type": "integer"},
            "what_to_do": _WHAT_TO_DO,
        },
        is_destructive=True,
        run=_send_message,
    ),
    AgentTool(
        name="get_message",
        title="Look up a message",
        description="Get one message with its timeline: when it was sent, delivered and read, or why it failed.",
        properties={"message_id": _text("The message's wamid, or its id from find_messages.", 512)},
        required=("message_id",),
        output={
            "wamid": {"type": ["string", "null"]},
            "status": {"type": "string"},
            "events": {"type": "array"},
        },
        run=_get_message,
    ),
    AgentTool(
        name="find_messages",
        title="Find messages",
        description="Find messages by status, direction, customer or time. The newest come first.",
        properties={
            "status": {
                "enum": ["accepted", "unknown", "received", "sent", "delivered", "read", "failed"],
                "description": "Only messages with this status.",
            },
            "direction": {
                "enum": ["inbound", "outbound"],
                "description": "Only messages from customers (inbound) or only messages to customers (outbound).",
            },
            "wa_id": _text("The customer's phone number in digits.", 32),
            "from": _FROM,
            "to": _TO,
            "limit": _LIMIT,
        },
        output=_PAGE,
        run=_find_messages,
    ),
    AgentTool(
        name="find_events",
        title="Find events",
        description="Find events in the event log by type, message, customer or time. The newest come first.",
        properties={
            "type": _text("Only events of this type, such as message.inbound."),
            "wamid": _text("Only events of the message with this wamid.", 512),
            "wa_id": _text("Only events of the customer with this phone number, in digits.", 32),
            "from": _FROM,
            "to": _TO,
            "limit": _LIMIT,
        },
        output=_PAGE,
        run=_find_events,
    ),
    AgentTool(
        name="get_event",
        title="Look up an event",
        description="Get one event with its body and its deliveries.",
        properties={"event_id": _text("The id of the event, which begins with evt_.", 64)},
        required=("event_id",),
        output={"event": _OBJECT, "deliveries": {"type": "array"}},
        run=_get_event,
    ),
    AgentTool(
        name="why_is_endpoint_failing",
        title="Diagnose a webhook endpoint",
        description="Explain in a sentence why a webhook endpoint fails. The result also has the endpoint's health, "
        "its newest failed deliveries, and the receiver's answers.",
        properties={
            "endpoint_id": _text("The id of the endpoint. Leave it out for the newest endpoints.", 64)
        },
        output={"endpoints": {"type": "array", "items": {"type": "object", "required": ["why"]}}},
        run=_why_endpoint_fails,
    ),
    AgentTool(
        name="replay_deliveries",
        title="Send webhooks again",
        description="Send past events to an endpoint again. Without confirm: true, the tool only counts them.",
        properties={
            "endpoint_id": _text("The id of the endpoint.", 64),
            "from": _FROM,
            "to": _TO,
            "status": {
                "type": "array",
                "items": {"enum": ["failed", "dead", "delivered", "missed"]},
                "description": "Only deliveries with one of these statuses; failed and dead by default. Missed means "
                "events that never got a delivery to this endpoint.",
            },
            "event_types": _TYPES,
            "confirm": _CONFIRM,
        },
        required=("endpoint_id", "from", "to"),
        changes=True,
        output={"preview": _OBJECT, "what_to_do": _WHAT_TO_DO},
        is_destructive=True,
        run=_replay,
    ),
    AgentTool(
        name="list_templates",
        title="List message templates",
        description="List message templates with their approval and quality.",
        properties={
            "name": _text("Only templates with this name.", 512),
            "status": _text("Only templates with this status, such as APPROVED.", 40),
            "language": _text("Only templates in this language, such as en.", 20),
            "limit": _LIMIT,
        },
        output=_PAGE,
        run=_list_templates,
    ),
    AgentTool(
        name="get_template",
        title="Look up a template",
        description="Get one template with its components, as WhatsApp has it now.",
        properties={"template_id": _text("WhatsApp's template id, from list_templates.", 64)},
        required=("template_id",),
        output={"id": {"type": "string"}, "name": {"type": "string"}, "status": {"type": "string"}},
        run=_get_template,
    ),
    AgentTool(
        name="submit_template",
        title="Submit a template for review",
        description="Submit a new message template to WhatsApp for review. Show the user the whole text first.",
        properties={
            "template": {
                "type": "object",
                "required": ["name", "language", "category", "components"],
                "description": 'The template in WhatsApp\'s form, such as {"name": "order_shipped", "language": "en", '
                '"category": "UTILITY", "components": [{"type": "BODY", "text": "Your order {{1}} is on its way.", '
                '"example": {"body_text": [["A-17"]]}}]}.',
            },
            "waba_id": _text("The id of the business account. Leave it out when there is only one.", 64),
        },
        required=("template",),
        output={"id": {"type": "string"}, "status": {"type": "string"}, "category": {"type": "string"}},
        changes=True,
        run=_submit_template,
    ),
    AgentTool(
        name="upload_media",
        title="Upload a file",
        description="Upload a file of up to about 700 kB. Returns the media id, which a message can name.",
        properties={
            "filename": _text("The name of the file with its extension, such as invoice.pdf.", 240),
            "content_type": _text("The media type of the file, such as application/pdf.", 100),
            "content_base64": _text("The file in base64.", 1_000_000),
            "from": _text("The id of the sending number. Leave it out when there is only one number.", 64),
        },
        required=("filename", "content_type", "content_base64"),
        output={"id": {"type": "string"}},
        changes=True,
        run=_upload_media,
    ),
    AgentTool(
        name="media_info",
        title="Look up a file",
        description="Get the type, size and hash of a file that you uploaded or that a customer sent.",
        properties={"media_id": _text("The media id of the file.", 64)},
        required=("media_id",),
        output={"id": {"type": "string"}, "mime_type": {"type": "string"}, "file_size": {}},
        run=_media_info,
    ),
    AgentTool(
        name="customer_window",
        title="Check a customer's 24-hour window",
        description="Check whether you may send a customer any message now, or only a template. The result also says "
        "until when, and whether the customer stopped marketing messages.",
        properties={
            "customer": _text(
                "The customer's phone number with country code, or the customer's user id.", 100
            ),
            "phone_number_id": _text(
                "The id of your number. Leave it out when there is only one number.", 64
            ),
        },
        required=("customer",),
        output={
            "window_open": {"type": "boolean"},
            "window_open_until": {"type": ["string", "null"]},
        },
        run=_customer_window,
    ),
    AgentTool(
        name="numbers_health",
        title="Check phone numbers",
        description="List the phone numbers with their connection. With an id, check whether that number can send, and "
        "what prevents it.",
        properties={"phone_number_id": _text("The id of one number to check.", 64)},
        output={
            "data": {"type": "array", "items": _OBJECT, "description": "All numbers, without an id."},
            "can_send_message": {"type": "string"},
        },
        run=_numbers_health,
    ),
    AgentTool(
        name="write_as_test_customer",
        title="Play a customer of the sandbox",
        description="Write to your number as a customer of the sandbox. The events come as with a real customer. The "
        "tool needs a test key.",
        properties={
            "from": _text("The customer's phone number.", 32),
            "text": _text("The text that the customer writes.", 4_096),
            "type": _text("The type of the message if it is not text, such as image.", 40),
        },
        required=("from",),
        changes=True,
        output={},
        run=_write_as_test_customer,
    ),
)
BY_NAME = {tool.name: tool for tool in TOOLS}


@dataclass(frozen=True, kw_only=True)
class AgentPrompt:
    """A task that a client suggests to people. An argument replaces each `{name}` in its text."""

    name: str
    title: str
    description: str
    arguments: Mapping[str, str] = field(default_factory=dict)
    text: str


PROMPTS: tuple[AgentPrompt, ...] = (
    AgentPrompt(
        name="why_did_it_fail",
        title="Why did a message not arrive?",
        description="Find out why a message did not arrive, and how to repair the cause.",
        arguments={"message": "The message's id, or the customer's phone number."},
        text="Find out what became of this WhatsApp message: {message}. A wamid goes to get_message, a phone number to "
        "find_messages. Tell me in plain words how far it came, why it failed, what repairs it, and whether the same "
        "message may be sent again. Look up error codes with search_docs. Send nothing.",
    ),
    AgentPrompt(
        name="check_up",
        title="Is everything working?",
        description="Find numbers, webhook endpoints and templates that need attention.",
        text="Check my WhatsApp set-up with numbers_health, why_is_endpoint_failing and list_templates. List only what "
        "needs attention, the most urgent first, each with its cause and what I do about it. Change nothing.",
    ),
    AgentPrompt(
        name="write_template",
        title="Write a message template",
        description="Draft a template that WhatsApp is likely to approve, and submit it after you have agreed.",
        arguments={
            "purpose": "What the message is for, such as telling a customer that the order has been sent."
        },
        text="Draft a WhatsApp message template for this purpose: {purpose}. Read guide:///templates first. Choose the "
        "category, name the variables with examples, and show me the whole text. Submit it with submit_template only "
        "after I have agreed.",
    ),
    AgentPrompt(
        name="integrate",
        title="Build it into my program",
        description="Write code that sends and receives messages, in your programming language.",
        arguments={"language": "The programming language, such as Python, TypeScript, PHP or Go."},
        text="Help me to send WhatsApp messages and to receive webhooks in {language}. Read guide:///quickstart, "
        "guide:///sdks and guide:///webhooks first. Use the sandbox: write_as_test_customer plays a customer, and "
        "find_events shows what came of it.",
    ),
)
PROMPT_BY_NAME = {prompt.name: prompt for prompt in PROMPTS}
