"""Dialogs of the staff admin: an action asks for confirmation, runs one flow, and tells staff how it went."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from django.contrib import messages
from django.db.models import Model
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from unfold import decorators
from unfold.forms import BaseDialogForm

from gateway.api.errors import InvalidRequest, ServiceError

Method = TypeVar("Method", bound=Callable[..., Any])
Made = TypeVar("Made")


def action(**options: Any) -> Callable[[Method], Method]:
    """The theme's `action`, typed: `description`, `permissions`, `icon`, `variant`, `dialog`."""
    return cast("Callable[[Method], Method]", decorators.action(**options))


def dialog(title: str, description: str, submit: str, form: type[BaseDialogForm] | None = None) -> Any:
    """The theme's dialog in front of an action."""
    return {"title": title, "description": description, "form_submit_text": submit, "form_class": form}


def attempted(request: HttpRequest, flow: Callable[[], Made], *, done: Callable[[Made], str]) -> Made | None:
    """The flow's result, announced by `done`. None when the flow refused: staff reads its reason instead."""
    try:
        result = flow()
    except InvalidRequest as error:
        fields = (error.details or {}).get("fields", {})
        problems = [problem for found in fields.values() for problem in found]
        messages.error(request, " ".join(problems) or error.text)
        return None
    except ServiceError as error:
        messages.error(request, error.text)
        return None
    messages.success(request, done(result))
    return result


def change_url(model: type[Model], key: Any) -> str:
    """The address of a row's page."""
    names = model._meta
    return reverse(f"admin:{names.app_label}_{names.model_name}_change", args=[key])


def redirect_dialog(url: str) -> HttpResponse:
    """The answer to a dialog's form that leads the whole page to an address."""
    return HttpResponse(headers={"HX-Redirect": url})
