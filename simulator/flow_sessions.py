"""A Flow from the customer's side: the message opens the Flow, the customer fills in its screens, a reply ends it.

Sources: Meta's "Flow JSON" and "Implementing Endpoint for Flows" (upstream fact 3.15). No state is kept between
steps: the caller passes the screen's id and data back, with the entered values. Components without texts or inputs
are left out, and so are conditions (`If`, `Switch`).
"""

import base64
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

import orjson
from aiohttp import web
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from simulator.control.views import answer, read, refusals, require_account
from simulator.customer_messages.inbound import receive
from simulator.parts import SIMULATOR, Simulator
from simulator.world.records import Flow, Message, Number

Object = dict[str, Any]

ENDPOINT_SECONDS = 10.0
_OAEP = padding.OAEP(mgf=padding.MGF1(hashes.SHA256()), algorithm=hashes.SHA256(), label=None)
_PLACEHOLDER = re.compile(r"\$\{(?:screen\.(\w+)\.)?(data|form)\.([\w.]+)\}")
_TEXTS = {"TextHeading": "heading", "TextSubheading": "heading", "TextBody": "text", "TextCaption": "text"}
_FIELDS = {
    "TextInput": "text",
    "TextArea": "area",
    "DatePicker": "date",
    "CalendarPicker": "date",
    "Dropdown": "choice",
    "RadioButtonsGroup": "choice",
    "CheckboxGroup": "choices",
    "ChipsSelector": "choices",
    "OptIn": "flag",
}


class Failed(Exception):
    """The Flow cannot continue. The exception's text is the reason."""


async def exchange(sim: Simulator, number: Number, flow: Flow, request: Object) -> tuple[int, Any]:
    """Send a data request to the Flow's endpoint. Returns the status and the decrypted answer, or the raw text of an
    answer that cannot be decrypted.

    Raises Failed for a number without a public key, or a Flow without an endpoint.
    """
    stored = sim.state.objects.get(f"{number.id}/whatsapp_business_encryption", {}).get("", {})
    if not stored.get("business_public_key"):
        raise Failed("The number has no public key: public-key-missing.")
    if not flow.endpoint_uri:
        raise Failed("The Flow has no endpoint_uri.")
    public_key = serialization.load_pem_public_key(stored["business_public_key"].encode())
    assert isinstance(public_key, rsa.RSAPublicKey)
    key, vector = os.urandom(16), os.urandom(16)
    parts = {
        "encrypted_flow_data": AESGCM(key).encrypt(vector, orjson.dumps(request), None),
        "encrypted_aes_key": public_key.encrypt(key, _OAEP),
        "initial_vector": vector,
    }
    body = orjson.dumps({name: base64.b64encode(part).decode() for name, part in parts.items()})
    status, content = await sim.notifier.ask(flow.endpoint_uri, body, seconds=ENDPOINT_SECONDS)
    if status != 200:
        return status, content.decode(errors="replace")
    flipped = bytes(byte ^ 0xFF for byte in vector)
    try:
        return status, orjson.loads(AESGCM(key).decrypt(flipped, base64.b64decode(content), None))
    except (ValueError, InvalidTag):
        raise Failed("The answer cannot be decrypted: response-decryption-error.") from None


class Session:
    """One step of a customer in the Flow of one message."""

    def __init__(self, sim: Simulator, message: Message) -> None:
        parameters = ((message.body.get("interactive") or {}).get("action") or {}).get("parameters") or {}
        flow = sim.state.flows.get(str(parameters.get("flow_id", "")))
        if flow is None:
            own = (each for each in sim.state.flows.values() if each.name == parameters.get("flow_name"))
            flow = next(own, None)
        number = sim.state.numbers[message.phone_number_id]
        if flow is None or flow.waba_id != number.waba_id:
            raise KeyError("such Flow")
        self._sim, self._message, self._flow, self._number = sim, message, flow, number
        self._parameters = parameters
        try:
            file = orjson.loads(flow.json or b"{}")
        except orjson.JSONDecodeError:
            file = {}
        self._screens: dict[str, Object] = {
            str(screen.get("id")): screen for screen in file.get("screens") or () if isinstance(screen, dict)
        }
        if not self._screens:
            raise KeyError("screen in this Flow's file")

    async def open(self) -> Object:
        """Return the first screen."""
        payload = self._parameters.get("flow_action_payload") or {}
        if self._parameters.get("flow_action") == "data_exchange":
            return await self._exchanged("INIT", None, {})
        first = str(payload.get("screen") or next(iter(self._screens)))
        return self._shown(first, payload.get("data") or {})

    async def submit(self, screen_id: str, data: Object, values: Object) -> Object:
        """Press the button of a screen. Returns the next screen or the end of the Flow."""
        screen = self._screens.get(screen_id)
        footer = next((each for each in _components(screen or {}) if each.get("type") == "Footer"), None)
        if footer is None:
            raise ValueError("there is no such screen with a button")
        action = footer.get("on-click-action") or {}
        payload = _resolved(action.get("payload") or {}, data, values)
        match action.get("name"):
            case "navigate":
                return self._shown(str((action.get("next") or {}).get("name")), payload)
            case "data_exchange":
                return await self._exchanged("data_exchange", screen_id, payload)
            case _:
                return self._closed({**payload, "flow_token": self._token})

    @property
    def _token(self) -> str:
        return str(self._parameters.get("flow_token") or "unused")

    async def _exchanged(self, action: str, screen: str | None, data: Object) -> Object:
        request: Object = {"version": "3.0", "action": action, "flow_token": self._token}
        if screen is not None:
            request |= {"screen": screen, "data": data}
        status, found = await exchange(self._sim, self._number, self._flow, request)
        if status == 427 and isinstance(found, str):
            try:
                said = orjson.loads(found)
            except orjson.JSONDecodeError:
                said = {}
            raise Failed(str(said.get("error_msg") or "This Flow is over."))
        if status != 200 or not isinstance(found, dict):
            raise Failed(f"The endpoint answered {status}.")
        content = found.get("data") or {}
        if found.get("screen") == "SUCCESS":
            return self._closed((content.get("extension_message_response") or {}).get("params") or {})
        if found.get("screen") not in self._screens:
            # WhatsApp also notifies the endpoint that its answer was unusable, so the business learns of the error.
            problem = {"error": "invalid-screen-transition", "error_message": "There is no such screen."}
            notice = {"version": "3.0", "action": action, "flow_token": self._token, "data": problem}
            await exchange(self._sim, self._number, self._flow, notice)
            raise Failed("The endpoint named no screen of this Flow.")
        return self._shown(str(found["screen"]), content)

    def _closed(self, response: Object) -> Object:
        """End the Flow. The Flow's reply is sent as a message of the customer."""
        reply = {"name": "flow", "body": "Sent", "response_json": orjson.dumps(response).decode()}
        receive(
            self._sim,
            {
                "phone_number_id": self._number.id,
                "from": self._message.customer,
                "type": "interactive",
                "interactive": {"type": "nfm_reply", "nfm_reply": reply},
                "context": self._message.id,
            },
        )
        return {"closed": True}

    def _shown(self, screen_id: str, data: Object) -> Object:
        screen = self._screens.get(screen_id)
        if screen is None:
            raise Failed(f"This Flow has no screen {screen_id}.")
        shown: Object = {
            "closed": False,
            "screen": screen_id,
            "title": str(screen.get("title") or screen_id),
            "data": data,
            "error": data.get("error_message"),
            "parts": [],
            "button": "Continue",
        }
        for each in _components(screen):
            kind, component = str(each.get("type")), _resolved(each, data, {})
            if kind in _TEXTS:
                text = component.get("text")
                lines = text if isinstance(text, list) else [text]
                shown["parts"] += [{"kind": _TEXTS[kind], "text": str(line)} for line in lines]
            elif kind in _FIELDS:
                shown["parts"].append(_field(_FIELDS[kind], component))
            elif kind == "Footer":
                shown["button"] = str(component.get("label") or "Continue")
        return shown


def _field(kind: str, component: Object) -> Object:
    source = component.get("data-source")
    return {
        "kind": kind,
        "name": str(component.get("name")),
        "label": str(component.get("label") or component.get("name")),
        "required": bool(component.get("required")),
        "help": str(component.get("helper-text") or ""),
        "options": [
            {"id": str(option.get("id")), "title": str(option.get("title") or option.get("id"))}
            for option in (source if isinstance(source, list) else ())
            if isinstance(option, dict)
        ],
    }


def _components(node: Mapping[str, Any]) -> Iterator[Object]:
    """The components of a screen in order, including those inside forms."""
    children = node.get("children") or (node.get("layout") or {}).get("children") or ()
    for child in children:
        if isinstance(child, dict):
            yield child
            if child.get("type") == "Form":
                yield from _components(child)


def _resolved(value: Any, data: Object, values: Object) -> Any:
    """A value with its placeholders replaced. A value that consists of a single placeholder becomes the data with the
    data's own type.
    """
    if isinstance(value, dict):
        return {name: _resolved(member, data, values) for name, member in value.items()}
    if isinstance(value, list):
        return [_resolved(member, data, values) for member in value]
    if not isinstance(value, str):
        return value
    found = _PLACEHOLDER.fullmatch(value)
    if found is not None:
        return _named(found, data, values)
    return _PLACEHOLDER.sub(lambda each: str(_named(each, data, values)), value)


def _named(found: "re.Match[str]", data: Object, values: Object) -> Any:
    value: Any = values if found[2] == "form" else data
    for name in found[3].split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


async def step(request: web.Request) -> web.Response:
    """POST /sim/messages/{id}/flow {waba_id?, screen?, data?, values?, probe?}: open a message's Flow, or press a
    button.

    The answer has the next screen, or `closed`, or `failed` with the reason for the failure. With `probe`, the answer
    only says whether the message has a Flow.
    """
    sim, body = request.app[SIMULATOR], await read(request)
    message = sim.state.messages.get(request.match_info["message_id"])
    if message is None or message.direction != "outbound":
        raise KeyError("such sent message")
    require_account(body, sim.state.numbers[message.phone_number_id].waba_id, "sent message")
    session = Session(sim, message)
    if body.get("probe"):
        return answer({"closed": False})
    try:
        if "screen" not in body:
            return answer(await session.open())
        return answer(
            await session.submit(str(body["screen"]), body.get("data") or {}, body.get("values") or {})
        )
    except Failed as failure:
        return answer({"closed": False, "failed": str(failure)})


async def send_data(request: web.Request) -> web.Response:
    """POST /sim/flows/{id}/data {phone_number_id, request}: send one data request exactly as given, for tests."""
    sim, body = request.app[SIMULATOR], await read(request)
    flow = sim.state.flows.get(request.match_info["flow_id"])
    number = sim.state.numbers.get(str(body.get("phone_number_id")))
    if flow is None or number is None:
        raise KeyError("such Flow and number")
    try:
        status, found = await exchange(sim, number, flow, body.get("request") or {})
    except Failed as failure:
        return answer({"failed": str(failure)})
    return answer({"status": status, "answer": found})


def add_routes(app: web.Application) -> None:
    """Register these routes in the application."""
    app.router.add_route("POST", "/sim/messages/{message_id}/flow", refusals(step))
    app.router.add_route("POST", "/sim/flows/{flow_id}/data", refusals(send_data))
