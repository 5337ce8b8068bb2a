"""Dialogs of the staff admin. An action asks for confirmation, runs a flow, and shows the result.

When the flow raises an error, the dialog opens again with the input. The reason stands beside the invalid field, which
has the focus.
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
"""The service's version of the theme's dialog."""
PAGE = "admin/dialog_page.html"
"""The template of a dialog as a full page. It is used when a dialog is opened in a new tab, or submitted before the
page's script has handled the form.
"""


class DialogForm(BaseDialogForm):  # type: ignore[misc]
    """The form in a dialog."""

    finding = ""
    """The result of a count that the dialog shows before the confirmation."""
    counted = ""
    """The choices for which the count was made."""

    def is_confirmed(self, choices: str) -> bool:
        """Whether the count was made for `choices`, the choices of this submission."""
        return bool(self.request.POST.get("counted") == choices)

    def shown_fields(self) -> list[BoundField]:
        """The visible fields. The first invalid field gets the focus. If all fields are valid, the first field gets the
        focus.
        """
        fields: list[BoundField] = self.visible_fields()
        focused = next((field for field in fields if field.errors), fields[0] if fields else None)
        if focused is not None:
            focused.field.widget.attrs["autofocus"] = True
        return fields

    def refuse(self, error: ServiceError) -> None:
        """Show a flow's error beside the fields that the error names, or else above the form."""
        named: dict[str, list[str]] = (error.details or {}).get("fields", {})
        for name, problems in named.items():
            self.add_error(name if name in self.fields else None, problems)
        if not named:
            self.add_error(None, error.text)


def dialog(title: str, description: str, submit: str, form: type[DialogForm] = DialogForm) -> dict[str, Any]:
    """The content of a dialog: title, explanation, label of the submit button, and form."""
    return {"title": title, "description": description, "form_submit_text": submit, "form_class": form}


def action(*, dialog: dict[str, Any], **options: Any) -> Callable[[Method], Method]:
    """An action with a dialog. The options `description`, `permissions`, `icon` and `variant` are those of the theme's
    decorator.

    The method receives the valid form and returns `done`. A ServiceError that it raises is shown in the dialog.
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
    """The response of a dialog that counts first: the same dialog, now with the result of the count.

    A button with the text `submit` confirms the count of these choices. When `submit` is empty, the button counts
    again.
    """
    form.finding = finding
    form.counted = choices if submit else ""
    return _shown(request, dialog, form, submit or dialog["form_submit_text"])


def _shown(request: HttpRequest, dialog: dict[str, Any], form: DialogForm, submit: str) -> HttpResponse:
    return render(request, TEMPLATE, {"dialog": dialog, "form": form, "form_submit_text": submit})


def done(request: HttpRequest, said: str, url: str) -> HttpResponse:
    """The response of a dialog that succeeded. It redirects the whole page to `url`, which shows the message `said`."""
    messages.success(request, said)
    return redirect_dialog(request, url)


def change_url(model: type[Model], key: Any) -> str:
    """The address of a row's admin page."""
    names = model._meta
    return reverse(f"admin:{names.app_label}_{names.model_name}_change", args=[key])


def redirect_dialog(request: HttpRequest, url: str) -> HttpResponse:
    """Respond to a dialog's form with a redirect of the whole page.

    If a form is submitted before the page's script has loaded, the browser sends an ordinary request, which gets an
    HTTP redirect.
    """
    if "HX-Request" in request.headers:
        return HttpResponse(headers={"HX-Redirect": url})
    return HttpResponseRedirect(url)
