"""Forms of templates: a new template with its buttons, a changed template, and choices of templates."""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, cast

from babel import Locale
from django import forms
from django.core.exceptions import ValidationError

from console.visit import Visit
from gateway.text_field import TextField
from messaging.message_templates import parameters
from messaging.message_templates.draft import AUTHENTICATION, MEDIA_HEADERS, Button, Draft, examples
from messaging.message_templates.parameters import variables
from messaging.models import MessageTemplate, MessageTemplateQuerySet
from messaging.sending.outbound import typed_number
from phone_numbers.models import BusinessAccount

MOST_BUTTONS = 10
_LINK = re.compile(r"https://[^\s/{}]+\.[^\s{}]*(\{\{1\}\})?")
MOST_TEMPLATES = 6_000
"""The maximum number of templates that a form offers: as many as one WhatsApp account can have."""


# The languages on Meta's page on message templates, "Supported languages".
_INDIAN = ("en", "en_US", "en_GB", "hi", "bn", "gu", "kn", "ml", "mr", "pa", "ta", "te", "ur")
_OTHER = re.findall(
    r"\w+",
    """
    af ar az bg ca cs da de el es es_AR es_ES es_MX et fa fi fil fr ga ha he hr hu id it ja ka kk ko ky_KG lo lt lv
    mk ms nb nl pl pt_BR pt_PT ro ru rw_RW sk sl sq sr sv sw th tr uk uz vi zh_CN zh_HK zh_TW zu
    """,
)


@cache
def _languages() -> list[tuple[str, Any]]:
    """The languages of templates as choices: India's languages first, then the others by name."""
    named = [(code, f"{Locale.parse(code).get_display_name('en')} ({code})") for code in (*_INDIAN, *_OTHER)]
    indian = named[: len(_INDIAN)]
    return [
        ("", "Choose one"),
        ("In India", indian),
        ("Others", sorted(named[len(_INDIAN) :], key=lambda one: one[1])),
    ]


class DraftForm(forms.Form):
    """The form of a template to submit."""

    account = forms.ChoiceField(label="Business account")
    name = forms.RegexField(
        r"^[a-z0-9_]{1,512}\Z",
        label="Name",
        help_text="Lowercase letters, digits and underscores, e.g. order_update.",
        error_messages={"invalid": "Use only lowercase letters, digits and underscores."},
    )
    language = forms.ChoiceField(label="Language", choices=_languages)
    category = forms.ChoiceField(
        label="Category",
        choices=[
            ("UTILITY", "Utility: an order or account"),
            ("MARKETING", "Marketing: offers and news"),
            (AUTHENTICATION, "Authentication: a one-time code"),
        ],
    )
    header_format = forms.ChoiceField(
        label="Header",
        required=False,
        choices=[
            ("", "None"),
            ("TEXT", "Text"),
            *((kind, f"{kind.capitalize()} (upload a sample)") for kind in MEDIA_HEADERS),
        ],
    )
    header_text = forms.CharField(label="Header text", max_length=60, required=False)
    header_example = forms.CharField(label="Example for the header's variable", max_length=60, required=False)
    header_sample = forms.FileField(label="Sample of the header's file", required=False)
    body = TextField(
        label="Body",
        max_length=1024,
        required=False,
        help_text="Variables are {{1}}, {{2}} … or {{name}}. None may be at the beginning or the end.",
        widget=forms.Textarea(attrs={"rows": 4, "dir": "auto", "data-marks": ""}),
    )
    body_examples = forms.CharField(
        label="Examples for the body's variables",
        required=False,
        help_text="One in each line, in the order of the variables. Meta's reviewers read them.",
        widget=forms.Textarea(attrs={"rows": 2, "dir": "auto"}),
    )
    footer = forms.CharField(label="Footer", max_length=60, required=False)
    code_minutes = forms.IntegerField(
        label="A code is valid for (minutes)",
        min_value=1,
        max_value=90,
        required=False,
        help_text="Only for authentication.",
    )

    def __init__(self, *args: Any, visit: Visit, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        owned = BusinessAccount.objects.for_environment(**visit.scope)
        accounts = list(owned.order_by("-id").values_list("waba_id", "name"))
        self.fields["account"].choices = [  # type: ignore[attr-defined]
            (waba_id, f"{name} ({waba_id})" if name and len(accounts) > 1 else name or waba_id)
            for waba_id, name in accounts
        ]

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if cleaned.get("category") == AUTHENTICATION:
            return cleaned
        self._check_header(cleaned)
        body = cleaned.get("body") or ""
        if not body:
            self.add_error("body", "Type the text of the message.")
            return cleaned
        found = variables(body)
        numbers = [name for name in found if name.isdecimal()]
        if numbers and numbers != [str(number) for number in range(1, len(found) + 1)]:
            self.add_error("body", "Number the variables {{1}}, {{2}} … without a gap, or name all of them.")
        if found and (body.lstrip().startswith("{{") or body.rstrip().endswith("}}")):
            self.add_error("body", "A variable cannot be at the beginning or at the end.")
        given = [line.strip() for line in cleaned.get("body_examples", "").splitlines() if line.strip()]
        if len(given) != len(found):
            self.add_error(
                "body_examples",
                f"Give {len(found)} example{'' if len(found) == 1 else 's'}, one in each line.",
            )
        cleaned["body_examples"] = given
        return cleaned

    def _check_header(self, cleaned: dict[str, Any]) -> None:
        if cleaned.get("header_format") != "TEXT":
            return
        found = variables(cleaned.get("header_text") or "")
        if not cleaned.get("header_text"):
            self.add_error("header_text", "Type the header, or choose none.")
        elif len(found) > 1:
            self.add_error("header_text", "A header has at most one variable.")
        elif found and not cleaned.get("header_example"):
            self.add_error("header_example", "Give an example for the variable.")

    def draft(self, buttons: list[Button], *, handle: str = "") -> Draft:
        """The typed template. `handle` is Meta's handle of the uploaded header sample."""
        values = self.cleaned_data
        is_media = values["header_format"] in MEDIA_HEADERS
        return Draft(
            name=values["name"],
            language=values["language"],
            category=values["category"],
            body=values["body"],
            body_examples=values["body_examples"] or (),
            header_format=values["header_format"],
            header_text=values["header_text"],
            header_example=handle if is_media else values["header_example"],
            footer=values["footer"],
            buttons=buttons,
            code_minutes=values["code_minutes"],
        )


class EditForm(DraftForm):
    """Changes a template. Account, name and language cannot change. The category of an approved template cannot change
    either.
    """

    def __init__(self, *args: Any, template: MessageTemplate, draft: Draft, **kwargs: Any) -> None:
        initial = {name: getattr(draft, name) for name in self.base_fields if hasattr(draft, name)}
        initial["body_examples"] = "\n".join(draft.body_examples)
        super().__init__(*args, initial=initial, **kwargs)
        self._kept = {
            "account": template.account.waba_id,
            "name": template.name,
            "language": template.language,
        }
        for name in self._kept:
            del self.fields[name]
        self.fields["category"].disabled = template.status == "APPROVED"

    def clean(self) -> dict[str, Any]:
        return {**super().clean(), **self._kept}


class ButtonForm(forms.Form):
    """The form of one button of a template. A form without a chosen kind adds no button."""

    kind = forms.ChoiceField(
        label="Kind",
        required=False,
        choices=[
            ("", "None"),
            ("QUICK_REPLY", "Quick reply"),
            ("URL", "Link"),
            ("PHONE_NUMBER", "Call a number"),
            ("COPY_CODE", "Copy a coupon code"),
        ],
    )
    text = forms.CharField(label="Text", max_length=25, required=False)
    value = forms.CharField(label="Link, number or code", max_length=2000, required=False)
    example = forms.CharField(label="Example of the whole link", max_length=2000, required=False)

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        kind, value = cleaned.get("kind"), cleaned.get("value", "")
        if kind and kind != "COPY_CODE" and not cleaned.get("text"):
            self.add_error("text", "Type the button's text.")
        if kind == "URL":
            if not _LINK.fullmatch(value):
                self.add_error("value", "A link must begin with https:// and may have {{1}} only at its end.")
            elif variables(value) and not cleaned.get("example"):
                self.add_error("example", "Give an example of the whole link.")
        elif kind == "PHONE_NUMBER":
            number = typed_number(value)
            if number is None:
                self.add_error("value", "Give the number with its country code.")
            cleaned["value"] = f"+{number}"
        elif kind == "COPY_CODE" and not 1 <= len(value) <= 15:
            self.add_error("value", "A code has 1 to 15 characters.")
        return cleaned

    def button(self) -> Button | None:
        """The button. None when no kind is chosen."""
        return Button(**self.cleaned_data) if self.cleaned_data.get("kind") else None


ButtonForms = forms.formset_factory(
    ButtonForm, extra=MOST_BUTTONS, max_num=MOST_BUTTONS, absolute_max=MOST_BUTTONS
)


def typed_so_far(typed: Mapping[str, Any], buttons: Any) -> Draft:
    """The template that was typed into a form so far, which may be incomplete. A variable without an example is shown
    unchanged.
    """
    body = str(typed.get("body", ""))
    found = variables(body)
    examples = [line.strip() for line in str(typed.get("body_examples", "")).splitlines() if line.strip()]
    is_text = typed.get("header_format") == "TEXT" and typed.get("header_text")
    return Draft(
        name="",
        language="",
        category=str(typed.get("category", "")),
        body=body,
        body_examples=[*examples, *(f"{{{{{name}}}}}" for name in found[len(examples) :])][: len(found)],
        header_format="TEXT" if is_text else "",
        header_text=str(typed.get("header_text", "")),
        header_example=str(typed.get("header_example") or "…"),
        footer=str(typed.get("footer", "")),
        buttons=[
            Button("QUICK_REPLY", text)
            for form in buttons
            if typed.get(form.add_prefix("kind")) and (text := str(typed.get(form.add_prefix("text"), "")))
        ],
    )


def parts_of(draft: Draft) -> list[tuple[str, str]]:
    """The parts of a template as customers will read it, each with its kind and text. Parts without a text are left
    out.
    """
    if draft.category == AUTHENTICATION:
        return [("body", "123456 is your verification code."), ("button", "Copy code")]
    document = draft.document()
    return [(part, text) for part, text in parameters.as_read(document, examples(document)) if text]


def initial_of(template: MessageTemplate) -> dict[str, Any]:
    """The initial values for a template in another language: account, name and category."""
    return {"account": template.account.waba_id, "name": template.name, "category": template.category}


def approved_templates(visit: Visit) -> MessageTemplateQuerySet:
    """The templates that can be sent."""
    return MessageTemplate.objects.for_environment(**visit.scope).filter(status="APPROVED")


def offer_templates(
    form: forms.Form, templates: MessageTemplateQuerySet, without: str = ""
) -> MessageTemplate | None:
    """Offer templates by name in the form's field `template`, after the choice `without` a template. Returns the
    chosen template, which is always offered. If others are left out, the field's help text says so.
    """
    field = cast("forms.ChoiceField", form.fields["template"])
    given = form.data.get("template") if form.is_bound else form.get_initial_for_field(field, "template")
    try:
        chosen = templates.filter(pk=given).first() if given else None
    except ValidationError:  # not the id of a template
        chosen = None
    rows = list(templates.order_by("name", "language", "id").only("name", "language")[: MOST_TEMPLATES + 1])
    listed = rows[:MOST_TEMPLATES] + ([chosen] if chosen else [])
    offered = {str(row.pk): f"{row.name} ({row.language})" for row in listed}
    field.choices = [*([("", without)] if without else []), *offered.items()]
    if len(rows) > MOST_TEMPLATES:
        cut = f"The first {MOST_TEMPLATES:,} by name are listed. To send another template, open its page."
        field.help_text = f"{field.help_text} {cut}".strip()
    return chosen
