"""Pages of message templates: the list, one template, its deletion, and the form that creates or changes one."""

from dataclasses import asdict
from typing import Any

import orjson
from django import forms
from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.template.defaultfilters import pluralize

from console import lists
from console.error_codes import UNREACHABLE, refusal_text
from console.json_text import indented
from console.template_forms import ButtonForms, DraftForm, EditForm, initial_of, parts_of, typed_so_far
from console.visit import Visit, flash_errors, or_404, require_open
from gateway.api import limits
from gateway.api.errors import ServiceError
from gateway.api.limits import limited_by
from gateway.upstream.calls import UpstreamUnreachable
from messaging.media.uploads import UNTYPED, Upload, media_type_of
from messaging.message_templates import draft, parameters, template_management
from messaging.message_templates.draft import CannotBeDrafted, draft_of
from messaging.message_templates.template_management import AccountChoice
from messaging.models import MessageTemplate, MessageTemplateQuerySet
from phone_numbers.tokens import Refused

STATUSES = ("APPROVED", "PENDING", "REJECTED", "PAUSED", "DISABLED")
TEMPLATES_PER_PAGE = 50
SAMPLE_FORM_BYTES = 17 * 1024 * 1024
"""The maximum size of a form with a header sample, in bytes. A video may have 16 MiB."""


class TemplateFilter(forms.Form):
    """The filter above the list of templates."""

    status = forms.ChoiceField(
        label="Status",
        required=False,
        choices=[("", "Any"), *((status, status.capitalize()) for status in STATUSES)],
    )
    name = forms.CharField(label="Name", required=False, max_length=512)


def template_list(request: HttpRequest, visit: Visit) -> HttpResponse:
    """List the templates of all accounts of the environment, by name, with a filter."""
    form = TemplateFilter(request.GET)
    wanted = lists.filled_fields(form)
    rows = MessageTemplate.objects.for_environment(**visit.scope)
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
            "form": form,
            "filtered": bool(wanted),
            "page": page,
            "rows": [(row, _text(row)) for row in page],
        },
    )


def template(request: HttpRequest, visit: Visit, template_id: str) -> HttpResponse:
    """Show one language of a template: the text that customers read, the variables, and the reason of a rejection."""
    found = _template(visit, template_id)
    document = orjson.loads(found.document)
    return render(
        request,
        "console/messaging/template.html",
        {
            "template": found,
            "editable": found.status in template_management.EDITABLE_STATUSES,
            "parts": parameters.as_read(document, _examples(document)),
            "parameters": _parameters(document),
            "rejected_reason": _reason(document),
            "languages": _languages(found).order_by("language"),
            "json": indented(found.document.encode()),
        },
    )


def _examples(document: dict[str, Any]) -> dict[str, str]:
    """The examples of the variables. Empty when Meta's document has them in an unknown form."""
    try:
        return draft.examples(document)
    except (AttributeError, KeyError, IndexError, TypeError, ValueError):
        return {}


def delete(request: HttpRequest, visit: Visit, template_id: str) -> HttpResponse:
    """Explain the effect of deleting a template. POST deletes this language, or with `all` every language of the
    template.
    """
    found = _template(visit, template_id)
    approved = set(_languages(found).filter(status="APPROVED").values_list("pk", flat=True))
    if request.method == "POST":
        require_open(visit)
        all_languages = request.POST.get("all") == "yes"
        is_reserved = bool(approved) if all_languages else found.pk in approved
        with flash_errors(request), limits.upstream.held(visit.tenant.id):
            try:
                template_management.delete(found, all_languages=all_languages)
                reserved = " Its name stays reserved for 30 days." if is_reserved else ""
                messages.success(request, f"Deleted.{reserved}")
                return redirect("console_templates")
            except Refused as error:
                messages.error(request, refusal_text(error))
            except UpstreamUnreachable:
                messages.error(request, UNREACHABLE)
        return redirect("console_template", template_id)
    return render(
        request, "console/messaging/template_delete.html", {"template": found, "approved": approved}
    )


def sync_templates(request: HttpRequest, visit: Visit) -> HttpResponse:
    """Read every template from Meta now."""
    require_open(visit)
    choice = AccountChoice(**visit.scope)
    with flash_errors(request), limits.upstream.held(visit.tenant.id):
        try:
            read = template_management.sync_now(choice)
        except (Refused, UpstreamUnreachable):
            messages.error(request, "Meta did not return the templates. Try again in a minute.")
        else:
            _say_what_was_read(request, choice, read)
    return redirect("console_templates")


def _say_what_was_read(request: HttpRequest, choice: AccountChoice, read: dict[str, Any]) -> None:
    names = dict(choice.accounts().values_list("waba_id", "name"))
    if not names:
        messages.warning(request, "There is no business account yet: connect a number first.")
        return
    refreshed = f"{read['synced']} template{pluralize(read['synced'])} refreshed."
    if failed := [f"{names.get(waba_id) or ''} ({waba_id})".strip() for waba_id in read.get("failed", ())]:
        messages.warning(
            request,
            f"{refreshed} Meta did not return the templates of {', '.join(failed)}: what this page shows of them may be"
            " old. Try again in a minute.",
        )
    else:
        messages.success(request, refreshed)


def _template(visit: Visit, template_id: str) -> MessageTemplate:
    with or_404():
        return template_management.find(**visit.scope, template_id=template_id)


def _languages(template: MessageTemplate) -> MessageTemplateQuerySet:
    """The languages of a template's name."""
    rows = MessageTemplate.objects.for_tenant(template.tenant_id)
    return rows.filter(account_id=template.account_id, name=template.name)


def _parameters(document: dict[str, Any]) -> list[parameters.Parameter]:
    try:
        return parameters.parameters_of(document)
    except parameters.CannotBeFilled:
        return []


def _reason(document: dict[str, Any]) -> str | None:
    reason = document.get("rejected_reason")
    return reason.replace("_", " ").capitalize() if isinstance(reason, str) and reason != "NONE" else None


def _text(row: MessageTemplate) -> str:
    """The text of a template's body, shown to identify the template."""
    return next((text for part, text in parameters.as_read(orjson.loads(row.document)) if part == "body"), "")


@limited_by(SAMPLE_FORM_BYTES)
def new(request: HttpRequest, visit: Visit) -> HttpResponse:
    """Show the form for a new template with its preview. POST submits it."""
    like = request.GET.get("like")
    form = DraftForm(
        request.POST or None,
        request.FILES or None,
        visit=visit,
        initial=initial_of(_template(visit, like)) if like else None,
    )
    return _written(request, visit, form, ButtonForms(request.POST or None, prefix="button"))


@limited_by(SAMPLE_FORM_BYTES)
def edit(request: HttpRequest, visit: Visit, template_id: str) -> HttpResponse:
    """Show the form with an existing template's content. After the submission, Meta reviews the template again."""
    template = _template(visit, template_id)
    if request.method == "POST":
        require_open(visit)
    if template.status not in template_management.EDITABLE_STATUSES:
        messages.error(request, "Only approved, rejected and paused templates can be edited.")
        return redirect("console_template", template_id)
    try:
        form, buttons = _edited(request, visit, template)
    except CannotBeDrafted:
        messages.error(
            request, "This template has parts that the form does not support. Edit it with the API."
        )
        return redirect("console_template", template_id)
    return _written(request, visit, form, buttons, template)


@limited_by(SAMPLE_FORM_BYTES)
def preview(request: HttpRequest, visit: Visit, template_id: str | None = None) -> HttpResponse:
    """Show only the preview. The page loads it while the form is filled in."""
    require_open(visit)
    template = _template(visit, template_id) if template_id else None
    try:
        form, buttons = _edited(request, visit, template) if template else _drafted(request, visit)
    except CannotBeDrafted:
        return HttpResponse(status=204)
    if form.is_valid() and buttons.is_valid():
        shown = _shown(form.draft(_buttons(buttons)), template)
    else:
        shown = {"parts": parts_of(typed_so_far(form.data, buttons))}
    return render(request, "console/messaging/template_preview.html", {**shown, "template": template})


def _drafted(request: HttpRequest, visit: Visit) -> tuple[DraftForm, Any]:
    return DraftForm(request.POST, visit=visit), ButtonForms(request.POST, prefix="button")


def _edited(request: HttpRequest, visit: Visit, template: MessageTemplate) -> tuple[EditForm, Any]:
    """The forms for changing a template. Raises CannotBeDrafted for a template with parts that the forms
    do not have.
    """
    was = draft_of(orjson.loads(template.document))
    given = request.POST or None
    form = EditForm(given, request.FILES or None, visit=visit, template=template, draft=was)
    return form, ButtonForms(given, prefix="button", initial=[asdict(button) for button in was.buttons])


def _written(
    request: HttpRequest, visit: Visit, form: DraftForm, buttons: Any, template: MessageTemplate | None = None
) -> HttpResponse:
    """The page with the forms. POST with `submit` submits the template to Meta and redirects to its page. Meta's
    refusal is shown as an error of the form.
    """
    context: dict[str, Any] = {
        "template": template,
        "form": form,
        "buttons": buttons,
        "open_buttons": buttons.is_bound or any(each.initial for each in buttons),
    }
    if request.method == "POST":
        require_open(visit)
        if form.is_valid() and buttons.is_valid():
            is_submitted = request.POST.get("do") == "submit"
            if is_submitted and (made := _submitted(request, visit, form, buttons, template)):
                return redirect("console_template", made)
            context |= _shown(form.draft(_buttons(buttons)), template)
    elif template is not None:
        context |= _shown(draft_of(orjson.loads(template.document)), template)
    failed = form.errors or (buttons.is_bound and buttons.total_error_count())
    return render(request, "console/messaging/template_new.html", context, status=400 if failed else 200)


def _submitted(
    request: HttpRequest, visit: Visit, form: DraftForm, buttons: Any, template: MessageTemplate | None
) -> str | None:
    """Submit a new or changed template and return its id. If Meta refuses the template, add the reason to the form's
    errors and return None.
    """
    choice = AccountChoice(visit.tenant.id, visit.environment, waba_id=form.cleaned_data["account"])
    if form.cleaned_data["header_format"] in draft.MEDIA_HEADERS and not form.cleaned_data["header_sample"]:
        form.add_error("header_sample", "Choose a file: Meta's reviewers look at it.")
        return None
    try:
        with limits.upstream.held(visit.tenant.id):
            account = choice.account()
            written = form.draft(_buttons(buttons), handle=_uploaded(account, form))
            if template is None:
                body = written.document()
                made = str(
                    template_management.create(account, body=orjson.dumps(body), members=body).json()["id"]
                )
            else:
                body = written.change(with_category=template.status != "APPROVED")
                template_management.edit(template, body=orjson.dumps(body), members=body)
                made = template.template_id
    except Refused as error:
        form.add_error(None, refusal_text(error))
    except ServiceError as error:
        form.add_error(None, error.text)
    except UpstreamUnreachable:
        form.add_error(None, f"{UNREACHABLE} It may have worked: refresh the templates before you repeat it.")
    else:
        messages.success(request, "Submitted. Meta reviews it, usually within minutes.")
        return made
    return None


def _uploaded(account: Any, form: DraftForm) -> str:
    """Upload the header's sample and return its handle. Empty without a sample."""
    sample = form.cleaned_data["header_sample"]
    if form.cleaned_data["header_format"] not in draft.MEDIA_HEADERS or sample is None:
        return ""
    upload = Upload(sample.file, sample.size, sample.name or "sample", media_type_of(sample) or UNTYPED)
    return str(template_management.upload_sample(account, upload).json()["h"])


def _shown(written: draft.Draft, template: MessageTemplate | None) -> dict[str, Any]:
    """The context of the preview: the template as customers will read it, and the body that would submit it."""
    body = written.change(with_category=template.status != "APPROVED") if template else written.document()
    return {"parts": parts_of(written), "submission": orjson.dumps(body, option=orjson.OPT_INDENT_2).decode()}


def _buttons(forms: Any) -> list[draft.Button]:
    return [button for form in forms if (button := form.button())]
