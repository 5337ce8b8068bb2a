"""Dialogs of the staff admin: an action asks for confirmation, runs one flow, and shows staff the result.

A dialog whose flow refuses opens again with what was typed, the reason beside its field, and the focus there.
"""

from collections.abc import Callable
from functools import wraps
from http import HTTPStatus
from typing import Any, TypeVar, cast

from django.contrib import messages
from django.db.models import Model
from django.forms import BoundField
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils.safestring import mark_safe
from unfold import decorators
from unfold.forms import BaseDialogForm

from gateway.api.errors import ServiceError

Method = TypeVar("Method", bound=Callable[..., HttpResponse])
TEMPLATE = "unfold/helpers/dialog.html"
"""The service's own form of the theme's dialog."""
PAGE = "admin/dialog_page.html"
"""A dialog as a whole page: opened in a tab of its own, or sent before the page's script took its form over."""


class DialogForm(BaseDialogForm):  # type: ignore[misc]
    """The form in a dialog."""

    finding = ""
    """What a count found, before the person confirms it."""
    counted = ""
    """The choices that the count was made for."""

    def is_confirmed(self, choices: str) -> bool:
        """Whether the person saw the count of the very choices that are sent now."""
        return bool(self.request.POST.get("counted") == choices)

    def shown_fields(self) -> list[BoundField]:
        """The fields that a person fills in. The first faulty one, else the first of all, takes the focus."""
        fields: list[BoundField] = self.visible_fields()
        focused = next((field for field in fields if field.errors), fields[0] if fields else None)
        if focused is not None:
            focused.field.widget.attrs["autofocus"] = True
        return fields

    def refuse(self, error: ServiceError) -> None:
        """Show why a flow refused, beside the fields that it names."""
        named: dict[str, list[str]] = (error.details or {}).get("fields", {})
        for name, problems in named.items():
            self.add_error(name if name in self.fields else None, problems)
        if not named:
            self.add_error(None, error.text)


def dialog(title: str, description: str, submit: str, form: type[DialogForm] = DialogForm) -> dict[str, Any]:
    """What a dialog asks: title, explanation, text of the button that carries it out, and form."""
    return {"title": title, "description": description, "form_submit_text": submit, "form_class": form}


def action(*, dialog: dict[str, Any], **options: Any) -> Callable[[Method], Method]:
    """An action with a dialog: `description`, `permissions`, `icon` and `variant` are the theme's.

    The method gets the valid form and answers with `done`. A ServiceError that it raises is shown in the dialog.
    """

    def decorated(method: Method) -> Method:
        @wraps(method)
        def answered(
            model_admin: Any, request: HttpRequest, form: DialogForm, object_id: str
        ) -> HttpResponse:
            try:
                return method(model_admin, request, form, object_id)
            except ServiceError as error:
                form.refuse(error)
                return _shown(request, dialog, form, dialog["form_submit_text"])

        shown = decorators.action(dialog=dialog, **options)(answered)

        @wraps(shown)
        def whole(model_admin: Any, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            answer: HttpResponse = shown(model_admin, request, *args, **kwargs)
            if answer.status_code != HTTPStatus.OK or "HX-Request" in request.headers:
                return answer
            context = model_admin.admin_site.each_context(request)
            parts = {"title": dialog["title"], "dialog": mark_safe(answer.content.decode())}  # noqa: S308 - rendered
            return render(request, PAGE, context | parts)

        return cast("Method", whole)

    return decorated


def ask_again(
    request: HttpRequest, dialog: dict[str, Any], form: DialogForm, choices: str, finding: str, submit: str
) -> HttpResponse:
    """The answer to a dialog that counts first: the same dialog with what was found.

    Its button, with the text `submit`, confirms the count of these choices. Without a text it counts once more.
    """
    form.finding = finding
    form.counted = choices if submit else ""
    return _shown(request, dialog, form, submit or dialog["form_submit_text"])


def _shown(request: HttpRequest, dialog: dict[str, Any], form: DialogForm, submit: str) -> HttpResponse:
    return render(request, TEMPLATE, {"dialog": dialog, "form": form, "form_submit_text": submit})


def done(request: HttpRequest, said: str, url: str) -> HttpResponse:
    """The answer to a dialog that was carried out: the whole page goes to an address, which says so."""
    messages.success(request, said)
    return redirect_dialog(request, url)


def change_url(model: type[Model], key: Any) -> str:
    """The address of a row's page."""
    names = model._meta
    return reverse(f"admin:{names.app_label}_{names.model_name}_change", args=[key])


def redirect_dialog(request: HttpRequest, url: str) -> HttpResponse:
    """The answer to a dialog's form that leads the whole page to an address.

    A form that was sent before the page's script took it over is the browser's own request, which follows a redirect.
    """
    if "HX-Request" in request.headers:
        return HttpResponse(headers={"HX-Redirect": url})
    return HttpResponseRedirect(url)
