"""Message templates: list, create, get, edit, delete, library (upstream fact 1.3). `message_templates/reviews.py`
reviews them.
"""

import time
from dataclasses import replace
from typing import Any

import orjson

from simulator.errors import GraphError, invalid_parameter, no_such_object
from simulator.graph.dispatch import Call, Table, text_of
from simulator.graph.fields import page, parse_fields, select
from simulator.graph.schema import coerced
from simulator.message_templates import library
from simulator.message_templates.rules import (
    check_category,
    check_components,
    check_language,
    check_name,
    check_ttl,
    refuse,
)
from simulator.world.identifiers import new_id
from simulator.world.records import Account, Template

_DEFAULT = ("name", "parameter_format", "components", "language", "status", "category", "id")
_EXISTS, _LIMIT, _BEING_DELETED = 2388024, 2388019, 2388023
_PER_ACCOUNT = 6000
_PER_HOUR = 100
_RESERVED_SECONDS = 30 * 86400


def template_fields(template: Template) -> dict[str, Any]:
    """Every field of a template."""
    sendable = "AVAILABLE" if template.status == "APPROVED" else "BLOCKED"
    return {
        "id": template.id,
        "name": template.name,
        "status": template.status,
        "category": template.category,
        "sub_category": None,
        "language": template.language,
        "components": template.components,
        "parameter_format": template.parameter_format,
        "previous_category": template.previous_category,
        "correct_category": None,
        "rejected_reason": template.rejected_reason,
        "quality_score": {"score": template.quality, "date": int(time.time()) // 86400 * 86400},
        "message_send_ttl_seconds": template.message_send_ttl_seconds,
        "cta_url_link_tracking_opted_out": False,
        "library_template_name": template.library_template_name,
        "degrees_of_freedom_spec": None,
        "health_status": {
            "can_send_message": sendable,
            "entities": [
                {"entity_type": "MESSAGE_TEMPLATE", "id": template.id, "can_send_message": sendable},
            ],
        },
    }


_MOST_TEMPLATES = 250
"""The maximum number of templates of a business that is not verified."""


async def list_templates(call: Call) -> dict[str, Any]:
    """GET /{waba}/message_templates: list templates."""
    account = call.account()
    query = call.request.query

    def fits(template: Template) -> bool:
        if template.waba_id != account.waba_id:
            return False
        for name in ("status", "category", "language", "quality_score"):
            wanted = query.get(name)
            value = template.quality if name == "quality_score" else getattr(template, name)
            if wanted and str(value).upper() not in {
                part.strip(' "').upper() for part in wanted.strip("[]").split(",")
            }:
                return False
        text = orjson.dumps(template.components).decode().lower()
        if query.get("content", "").lower() not in text:
            return False
        either = query.get("name_or_content", "").lower()
        return query.get("name", "") in template.name and (either in template.name or either in text)

    found = [template for template in reversed(call.sim.state.templates.values()) if fits(template)]
    listed = page(call, found, lambda t: t.id, lambda t: select(call, template_fields(t), _DEFAULT))
    if asked := parse_fields(query.get("summary", "")):
        summary = _summary(call, account, len(found))
        listed["summary"] = {name: summary[name] for name in asked if name in summary}
    return listed


def _summary(call: Call, account: Account, total: int) -> dict[str, Any]:
    count = sum(template.waba_id == account.waba_id for template in call.sim.state.templates.values())
    return {
        "total_count": total,
        "message_template_count": count,
        "message_template_limit": _MOST_TEMPLATES,
        "are_translations_complete": True,
    }


def template_of(call: Call) -> Template:
    """The template in the path. Raises an error if the token may not manage the template's account."""
    template = call.sim.state.templates.get(call.node)
    if template is None:
        raise no_such_object(call.node, call.request.method)
    call.account(template.waba_id)
    return template


async def get_template(call: Call) -> dict[str, Any]:
    """GET /{template}: read a template."""
    return select(call, template_fields(template_of(call)), _DEFAULT)


async def create_template(call: Call) -> dict[str, Any]:
    """POST /{waba}/message_templates: create a template, from components or from the library (approved at once)."""
    account = call.account()
    body = call.params()
    name, language = text_of(body, "name"), text_of(body, "language")
    category = check_category(text_of(body, "category"))
    check_name(name)
    check_language(language)
    _check_room(call, account, name, language)
    parameter_format = str(body.get("parameter_format") or "POSITIONAL").upper()
    if parameter_format not in {"POSITIONAL", "NAMED"}:
        raise invalid_parameter("Param parameter_format must be one of {NAMED, POSITIONAL}")
    ttl = body.get("message_send_ttl_seconds")
    check_ttl(category, ttl)
    library_name = body.get("library_template_name")
    components: Any
    if library_name:
        components = _from_library(str(library_name), body)
    else:
        if "promo" in name and category == "UTILITY":
            # Meta changes the category of a template that looks like marketing. The answer has the new category.
            category = "MARKETING"
        components = _list_in(body, "components")
    template = Template(
        id=new_id("41"),
        waba_id=account.waba_id,
        name=name,
        language=language,
        category=category,
        components=check_components(call.sim.state, category, parameter_format == "NAMED", components),
        parameter_format=parameter_format,
        message_send_ttl_seconds=ttl,
        library_template_name=str(library_name) if library_name else None,
    )
    call.sim.state.add_template(template)
    if library_name:
        call.sim.reviews.decide(template, "APPROVED")
    else:
        call.sim.reviews.submit(template)
    return {"id": template.id, "status": template.status, "category": template.category}


async def upsert_templates(call: Call) -> dict[str, Any]:
    """POST /{waba}/upsert_message_templates: create or change an authentication template in several languages."""
    account, body = call.account(), call.params()
    name, category = text_of(body, "name"), check_category(text_of(body, "category"))
    if category != "AUTHENTICATION":
        raise invalid_parameter("Param category must be AUTHENTICATION")
    check_name(name)
    components = check_components(call.sim.state, category, False, _list_in(body, "components"))
    rows = []
    for language in coerced("texts", "languages", body.get("languages")):
        template = call.sim.state.template_index.get((account.waba_id, name, language))
        if template is None:
            check_language(language)
            _check_room(call, account, name, language)
            template = Template(new_id("41"), account.waba_id, name, language, category, components)
            call.sim.state.add_template(template)
        template.components = components
        call.sim.reviews.submit(template)
        rows.append({"id": template.id, "status": template.status, "language": language})
    call.sim.state.changed()
    return {"data": rows}


async def preview_templates(call: Call) -> dict[str, Any]:
    """GET /{waba}/message_template_previews: the text of an authentication template in each requested language."""
    call.account()
    params = call.params()
    if text_of(params, "category").upper() != "AUTHENTICATION":
        raise invalid_parameter("Param category must be AUTHENTICATION")
    warning = " For your security, do not share this code."
    is_warned = params.get("add_security_recommendation") in {True, "true"}
    row: dict[str, Any] = {
        "body": "*{{1}}* is your verification code." + (warning if is_warned else ""),
        "buttons": [{"autofill_text": "Autofill", "text": "Copy code"}],
    }
    if minutes := params.get("code_expiration_minutes"):
        row["footer"] = f"This code expires in {minutes} minutes."
    languages = coerced("texts", "languages", params.get("languages", "en_US"))
    return {"data": [{**row, "language": language} for language in languages]}


async def migrate_templates(call: Call) -> dict[str, Any]:
    """POST /{waba}/migrate_message_templates: copy another account's approved templates."""
    account, params = call.account(), call.params()
    source = call.source_account()
    asked = coerced("texts", "template_ids", params["template_ids"]) if "template_ids" in params else None
    found = [
        template
        for template in call.sim.state.templates.values()
        if template.waba_id == source.waba_id and (asked is None or template.id in asked)
    ]
    migrated, failed = [], {}
    for template in found:
        if (account.waba_id, template.name, template.language) in call.sim.state.template_index:
            failed[template.id] = "Content in this language exists already"
            continue
        copy = replace(template, id=new_id("41"), waba_id=account.waba_id, edited_at=[])
        call.sim.state.add_template(copy)
        migrated.append(template.id)
    call.sim.state.changed()
    return {"migrated_templates": migrated, "failed_templates": failed}


def _list_in(body: dict[str, Any], name: str) -> Any:
    value = body.get(name)
    return coerced("list", name, value) if isinstance(value, str) else value


def _check_room(call: Call, account: Account, name: str, language: str) -> None:
    state = call.sim.state
    if (account.waba_id, name, language) in state.template_index:
        raise refuse(f"There is already {language} content for this template.", _EXISTS, "Content exists")
    deleted_at = state.deleted_templates.get((account.waba_id, name, language), 0.0)
    if time.time() - deleted_at < _RESERVED_SECONDS:
        raise refuse(
            f"The {language} content of this name is being deleted.", _BEING_DELETED, "Being deleted"
        )
    own = sum(1 for template in state.templates.values() if template.waba_id == account.waba_id)
    if own >= _PER_ACCOUNT:
        raise refuse(f"The account has {own} templates already.", _LIMIT, "Limit reached")
    now = time.time()
    recent = [at for at in state.template_creations.get(account.waba_id, ()) if at > now - 3600]
    if call.sim.settings.throttling.management and len(recent) >= _PER_HOUR:
        raise GraphError(80007, f"More than {_PER_HOUR} templates were created within an hour.")
    state.template_creations[account.waba_id] = [*recent, now]


def _from_library(name: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    entry = library.by_name(name)
    if entry is None:
        raise invalid_parameter(f"The library has no template {name}")
    inputs = coerced("list", "inputs", body.get("library_template_button_inputs") or [])
    components: list[dict[str, Any]] = []
    if "header" in entry:
        components.append({"type": "HEADER", "format": "TEXT", "text": entry["header"]})
    components.append(
        {"type": "BODY", "text": entry["body"], "example": {"body_text": [entry["body_params"]]}}
    )
    buttons = []
    for position, button in enumerate(entry["buttons"]):
        given = inputs[position] if position < len(inputs) and isinstance(inputs[position], dict) else {}
        button = dict(button)
        if button["type"] == "URL":
            url = given.get("url") or {}
            button["url"] = url.get("base_url", button["url"])
            button["example"] = [url.get("url_suffix_example", button["url"].replace("{{1}}", "17"))]
        elif button["type"] == "PHONE_NUMBER":
            button["phone_number"] = given.get("phone_number", button["phone_number"])
        buttons.append(button)
    return [*components, {"type": "BUTTONS", "buttons": buttons}] if buttons else components


async def edit_template(call: Call) -> dict[str, Any]:
    """POST /{template}: change components, category or validity, which starts a new review."""
    template = template_of(call)
    body = call.params()
    if template.status not in {"APPROVED", "REJECTED", "PAUSED"}:
        raise invalid_parameter("Only approved, rejected and paused templates can be edited")
    now = time.time()
    edits = [at for at in template.edited_at if at > now - 30 * 86400]
    if template.status == "APPROVED" and ((edits and edits[-1] > now - 86400) or len(edits) >= 10):
        raise invalid_parameter("An approved template can be edited once in 24 hours and 10 times in 30 days")
    category = check_category(str(body.get("category") or template.category))
    if template.status == "APPROVED" and category != template.category:
        raise invalid_parameter("The category of an approved template cannot be changed")
    named = str(body.get("parameter_format") or template.parameter_format).upper() == "NAMED"
    ttl = body.get("message_send_ttl_seconds", template.message_send_ttl_seconds)
    check_ttl(category, ttl)
    if "components" in body:
        template.components = check_components(call.sim.state, category, named, _list_in(body, "components"))
    template.category, template.message_send_ttl_seconds = category, ttl
    template.parameter_format = "NAMED" if named else "POSITIONAL"
    template.edited_at = [*edits, now]
    call.sim.reviews.submit(template)
    call.sim.state.changed()
    return {"success": True, "id": template.id, "name": template.name, "category": template.category}


async def unpause_template(call: Call) -> dict[str, Any]:
    """POST /{template}/unpause: make a paused template sendable again."""
    template = template_of(call)
    if template.status != "PAUSED":
        raise invalid_parameter("The template is not paused")
    call.sim.reviews.decide(template, "APPROVED")
    return {"success": True}


async def delete_templates(call: Call) -> dict[str, Any]:
    """DELETE /{waba}/message_templates: delete templates by name (all languages), by hsm_id (one) or by hsm_ids."""
    account = call.account()
    params = call.params()
    own = [t for t in call.sim.state.templates.values() if t.waba_id == account.waba_id]
    ids = params.get("hsm_ids") or ([params["hsm_id"]] if params.get("hsm_id") else [])
    if ids:
        wanted = set(coerced("texts", "hsm_ids", ids))
        chosen = [t for t in own if t.id in wanted and params.get("name") in {None, t.name}]
        if len(chosen) != len(wanted):
            raise invalid_parameter(
                "The template to delete does not exist", subcode=2593002, title="Not found"
            )
    else:
        name = text_of(params, "name")
        chosen = [t for t in own if t.name == name]
        if not chosen:
            raise invalid_parameter(
                "The template to delete does not exist", subcode=2593002, title="Not found"
            )
    if any(t.status == "DISABLED" for t in chosen):
        raise invalid_parameter("A disabled template cannot be deleted")
    state, now = call.sim.state, time.time()
    state.deleted_templates = {
        key: at for key, at in state.deleted_templates.items() if now - at < _RESERVED_SECONDS
    }
    for template in chosen:
        if template.status == "APPROVED":
            key = (template.waba_id, template.name, template.language)
            state.deleted_templates[key] = now
        call.sim.reviews.decide(template, "PENDING_DELETION")
        state.drop_template(template)
    return {"success": True}


async def list_library(call: Call) -> dict[str, Any]:
    """GET /message_template_library or /{waba}/message_template_library: search the library."""
    if call.edge:
        call.account()
    entries = library.search(dict(call.request.query))
    return page(call, entries, lambda entry: str(entry["id"]), lambda entry: entry)


def register(table: Table) -> None:
    """Register these routes in the table."""
    table.edge("GET", "message_templates", list_templates)
    table.edge("POST", "message_templates", create_template)
    table.edge("DELETE", "message_templates", delete_templates)
    table.edge("POST", "upsert_message_templates", upsert_templates)
    table.edge("GET", "message_template_previews", preview_templates)
    table.edge("POST", "migrate_message_templates", migrate_templates)
    table.edge("GET", "message_template_library", list_library)
    table.root("GET", "message_template_library", list_library)
    table.edge("POST", "unpause", unpause_template)
    table.node("GET", lambda sim, node: node in sim.state.templates, get_template)
    table.node("POST", lambda sim, node: node in sim.state.templates, edit_template)
