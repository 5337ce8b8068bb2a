"""Console pages of message templates: list, one template, a new one with its preview."""

from typing import Any

import orjson
from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from gateway.api.errors import ServiceError
from gateway.api.limits import in_flight
from gateway.api.limits.body_size import limited_by
from gateway.roles import Area
from gateway.upstream.calls import UpstreamUnreachable
from messaging.console.template_forms import ButtonForms, DraftForm, TemplateFilter, initial_of
from messaging.message_templates import draft, operations, parameters
from messaging.message_templates.operations import AccountChoice
from messaging.models import MessageTemplate
from messaging.uploads import Upload
from phone_numbers.graph_calls import Refused
from tenants.console.frame import Visit, console_page, or_404, require_active, told
from tenants.console.json_text import indented

TEMPLATES_PER_PAGE = 50
UNREACHABLE = "The platform did not answer. Try again in a minute."


@require_safe
@console_page(Area.INTEGRATION)
def template_list(request: HttpRequest, visit: Visit) -> HttpResponse:
    """The templates of all accounts of the environment, by name, with a filter."""
    form = TemplateFilter(request.GET)
    wanted = form.cleaned_data if form.is_valid() else {}
    rows = MessageTemplate.objects.for_tenant(visit.tenant.id).filter(environment=visit.environment)
    if wanted.get("status"):
        rows = rows.filter(status=wanted["status"])
    if wanted.get("name"):
        rows = rows.filter(name__icontains=wanted["name"])
    page = Paginator(rows.order_by("name", "language", "id"), TEMPLATES_PER_PAGE).get_page(
        request.GET.get("page")
    )
    return render(
        request,
        "console/messaging/templates.html",
        {
            "tenant": visit.tenant,
            "form": form,
            "filtered": any(wanted.values()),
            "page": page,
            "rows": [(row, _text(row)) for row in page],
        },
    )


@require_safe
@console_page(Area.INTEGRATION)
def template(request: HttpRequest, visit: Visit, template_id: str) -> HttpResponse:
    """One language of a template: what the customer reads, its variables, why it is refused."""
    found = _template(visit, template_id)
    document = orjson.loads(found.document)
    languages = MessageTemplate.objects.for_tenant(visit.tenant.id).filter(
        account_id=found.account_id, name=found.name
    )
    return render(
        request,
        "console/messaging/template.html",
        {
            "template": found,
            "tenant": visit.tenant,
            "parts": parameters.as_read(document),
            "parameters": _parameters(document),
            "rejected_reason": _reason(document),
            "languages": languages.order_by("language"),
            "json": indented(found.document.encode()),
        },
    )


@limited_by("MAX_SAMPLE_REQUEST_BYTES")
@require_http_methods(["GET", "HEAD", "POST"])
@console_page(Area.INTEGRATION)
def new(request: HttpRequest, visit: Visit) -> HttpResponse:
    """The form for a new template; it is shown as customers will read it, and submitted."""
    like = request.GET.get("like")
    form = DraftForm(
        request.POST or None,
        request.FILES or None,
        visit=visit,
        initial=initial_of(_template(visit, like)) if like else None,
    )
    buttons = ButtonForms(request.POST or None, prefix="button")
    context: dict[str, Any] = {"tenant": visit.tenant, "form": form, "buttons": buttons}
    if request.method == "POST":
        require_active(visit)
        if form.is_valid() and buttons.is_valid():
            if request.POST.get("do") == "submit" and (made := _submitted(request, visit, form, buttons)):
                return redirect("console_template", made)
            context |= _preview_of(form, buttons)
    failed = form.errors or any(buttons.errors if buttons.is_bound else [])
    return render(request, "console/messaging/template_new.html", context, status=400 if failed else 200)


@limited_by("MAX_SAMPLE_REQUEST_BYTES")
@require_POST
@console_page(Area.INTEGRATION)
def preview(request: HttpRequest, visit: Visit) -> HttpResponse:
    """The preview alone: the page asks for it while the form is filled in."""
    require_active(visit)
    form, buttons = DraftForm(request.POST, visit=visit), ButtonForms(request.POST, prefix="button")
    shown = _preview_of(form, buttons) if form.is_valid() and buttons.is_valid() else {}
    return render(request, "console/messaging/template_preview.html", shown)


@require_http_methods(["GET", "HEAD", "POST"])
@console_page(Area.INTEGRATION)
def delete(request: HttpRequest, visit: Visit, template_id: str) -> HttpResponse:
    """A page that says what deleting does; POST deletes this language, or with `all` the whole name."""
    found = _template(visit, template_id)
    if request.method == "POST":
        require_active(visit)
        with told(request), in_flight.upstream.held(visit.tenant.id):
            try:
                operations.delete(found, all_languages=request.POST.get("all") == "yes")
                messages.success(request, "Deleted. Its name stays reserved for 30 days.")
                return redirect("console_templates")
            except Refused as error:
                messages.error(request, _said(error))
            except UpstreamUnreachable:
                messages.error(request, UNREACHABLE)
        return redirect("console_template", template_id)
    return render(request, "console/messaging/template_delete.html", {"template": found})


@require_POST
@console_page(Area.INTEGRATION)
def sync_templates(request: HttpRequest, visit: Visit) -> HttpResponse:
    """Read every template from the platform now."""
    require_active(visit)
    choice = AccountChoice(tenant_id=visit.tenant.id, environment=visit.environment)
    with told(request), in_flight.upstream.held(visit.tenant.id):
        try:
            read = operations.sync_now(choice)
        except (Refused, UpstreamUnreachable):
            messages.error(request, "The platform did not give the templates. Try again in a minute.")
        else:
            messages.success(request, f"{read['synced']} templates read.")
    return redirect("console_templates")


def _template(visit: Visit, template_id: str) -> MessageTemplate:
    with or_404():
        return operations.find(
            tenant_id=visit.tenant.id, environment=visit.environment, template_id=template_id
        )


def _submitted(request: HttpRequest, visit: Visit, form: DraftForm, buttons: Any) -> str | None:
    """Submit the template; returns its id. None when it was refused, which the form then says."""
    choice = AccountChoice(visit.tenant.id, visit.environment, waba_id=form.cleaned_data["account"])
    if form.cleaned_data["header_format"] in draft.MEDIA_HEADERS and not form.cleaned_data["header_sample"]:
        form.add_error("header_sample", "Choose a file: the platform's reviewers look at it.")
        return None
    try:
        with in_flight.upstream.held(visit.tenant.id):
            account = choice.account()
            handle = _uploaded(account, form)
            body = form.draft(_buttons(buttons), handle=handle).document()
            answer = operations.create(account, body=orjson.dumps(body), members=body).json()
    except Refused as error:
        form.add_error(None, _said(error))
    except ServiceError as error:
        form.add_error(None, error.text)
    except UpstreamUnreachable:
        form.add_error(None, f"{UNREACHABLE} It may have been made: read the templates before you repeat it.")
    else:
        messages.success(request, "Submitted. The platform reviews it, usually within minutes.")
        return str(answer["id"])
    return None


def _uploaded(account: Any, form: DraftForm) -> str:
    """The handle of the header's sample; empty when there is none to upload."""
    sample = form.cleaned_data["header_sample"]
    if form.cleaned_data["header_format"] not in draft.MEDIA_HEADERS or sample is None:
        return ""
    mime_type = sample.content_type or "application/octet-stream"
    upload = Upload(sample.file, sample.size, sample.name or "sample", mime_type)
    return str(operations.upload_sample(account, upload).json()["h"])


def _preview_of(form: DraftForm, buttons: Any) -> dict[str, Any]:
    document = form.draft(_buttons(buttons)).document()
    if document["category"] == draft.AUTHENTICATION:
        parts = [("body", "123456 is your verification code."), ("button", "Copy code")]
    else:
        parts = parameters.as_read(document, draft.examples(document))
    return {"parts": parts, "request": orjson.dumps(document, option=orjson.OPT_INDENT_2).decode()}


def _buttons(forms: Any) -> list[draft.Button]:
    return [button for form in forms if (button := form.button())]


def _parameters(document: dict[str, Any]) -> list[parameters.Parameter]:
    try:
        return parameters.parameters_of(document)
    except parameters.CannotBeFilled:
        return []


def _reason(document: dict[str, Any]) -> str | None:
    reason = document.get("rejected_reason")
    return reason.replace("_", " ").capitalize() if isinstance(reason, str) and reason != "NONE" else None


def _said(refusal: Refused) -> str:
    """What the platform said against it, in its words for people."""
    error = refusal.answer.json().get("error")
    words = error if isinstance(error, dict) else {}
    return str(words.get("error_user_msg") or words.get("message") or "The platform refused it.")


def _text(row: MessageTemplate) -> str:
    """The text of a template's body, to recognise it by."""
    return next((text for part, text in parameters.as_read(orjson.loads(row.document)) if part == "body"), "")
