"""The forms for a number: registration with a PIN, business profile, Flow endpoint, and release of the number.

To release a number, the member types its id.
"""

from collections.abc import Mapping
from typing import Any

import orjson
from django import forms
from django.conf import settings
from django.core.exceptions import ValidationError

from console.change_forms import ChangeForm
from gateway.outbound.client import InvalidUrlError, validate_url
from gateway.text_field import TextField
from webhooks.models import MAX_URL_LENGTH


class TwoStepForm(forms.Form):
    """Sets the two-step PIN of a number."""

    pin = forms.RegexField(
        r"^\d{6}\Z",
        label="New two-step PIN",
        help_text="Six digits. Meta asks for them when the number moves to another provider.",
        error_messages={"invalid": "A PIN has six digits."},
        widget=forms.TextInput(attrs={"autocomplete": "off", "inputmode": "numeric"}),
    )


class RegisterForm(TwoStepForm):
    """Registers a number for sending."""

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        pin = self.fields["pin"]
        pin.label, pin.required = "Two-step PIN", False
        pin.help_text = (
            "The number's six-digit PIN, if it already has one. Empty: the gateway creates and stores one. You can set "
            "your own later."
        )


_VERTICALS = {
    "ALCOHOL": "Alcoholic drinks",
    "APPAREL": "Clothing",
    "AUTO": "Cars and vehicles",
    "BEAUTY": "Beauty and cosmetics",
    "EDU": "Education",
    "ENTERTAIN": "Entertainment",
    "EVENT_PLAN": "Event planning",
    "FINANCE": "Finance",
    "GOVT": "Public service",
    "GROCERY": "Groceries",
    "HEALTH": "Health and medicine",
    "HOTEL": "Hotels",
    "MATRIMONY_SERVICE": "Matrimony",
    "NONPROFIT": "Charity",
    "NOT_A_BIZ": "Not a business",
    "ONLINE_GAMBLING": "Gambling, online",
    "OTC_DRUGS": "Medicines without prescription",
    "PHYSICAL_GAMBLING": "Gambling, on site",
    "PROF_SERVICES": "Professional services",
    "RESTAURANT": "Restaurants",
    "RETAIL": "Shopping and retail",
    "TRAVEL": "Travel and transport",
    "OTHER": "Other",
}
"""Kinds of business in Meta's profile (upstream fact 1.7)."""


class ProfileForm(ChangeForm):
    """The business profile that customers see in a chat. Only fields that differ from the shown ones are sent to
    Meta.
    """

    about = forms.CharField(label="About", max_length=139, required=False, help_text="A line under the name.")
    description = TextField(
        label="Description",
        max_length=512,
        required=False,
        widget=forms.Textarea(attrs={"rows": 3, "dir": "auto"}),
    )
    address = forms.CharField(label="Address", max_length=256, required=False)
    email = forms.EmailField(label="Email", max_length=128, required=False)
    website = forms.URLField(label="Website", max_length=256, required=False, assume_scheme="https")
    second_website = forms.URLField(
        label="Second website", max_length=256, required=False, assume_scheme="https"
    )
    vertical = forms.ChoiceField(
        label="Kind of business", required=False, choices=[("", "Not stated"), *_VERTICALS.items()]
    )

    @classmethod
    def of(cls, profile: Mapping[str, Any], given: Any) -> "ProfileForm":
        """The form with the values of Meta's profile. `given`: the submitted values, or None."""
        first, second = [*(profile.get("websites") or []), "", ""][:2]
        vertical = profile.get("vertical")
        known = {name: profile.get(name, "") for name in ("about", "description", "address", "email")}
        return cls(
            given,
            initial={
                **known,
                "website": first,
                "second_website": second,
                "vertical": vertical if vertical in _VERTICALS else "",
            },
        )

    def body(self) -> bytes:
        """The body of the call: the members that were changed in the form. Both websites are in one member: an
        unchanged one is sent as Meta has it now.
        """
        changed = self.changed_values()
        members: dict[str, object] = {
            name: changed[name] for name in ("about", "description", "address", "email") if name in changed
        }
        if "vertical" in changed:
            members["vertical"] = changed["vertical"] or "UNDEFINED"
        if changed.keys() & {"website", "second_website"}:
            sites = {name: self.initial[name] for name in ("website", "second_website")} | changed
            members["websites"] = [sites[name] for name in ("website", "second_website") if sites[name]]
        return orjson.dumps({"messaging_product": "whatsapp", **members})


class FlowEndpointForm(forms.Form):
    """The URL for the data requests of a number's Flows."""

    url = forms.CharField(
        label="URL of your server",
        max_length=MAX_URL_LENGTH,
        widget=forms.URLInput(attrs={"autocomplete": "off", "placeholder": "https://example.com/flows"}),
    )

    def clean_url(self) -> str:
        try:
            return validate_url(
                self.cleaned_data["url"], allow_http=settings.WEBHOOK_ALLOW_HTTP, max_length=MAX_URL_LENGTH
            )
        except InvalidUrlError as error:
            raise ValidationError(str(error)) from None


class ReleaseForm(forms.Form):
    """Releases a number. The member must type the number's id, so a wrong click releases nothing."""

    phone_number_id = forms.CharField(
        label="Type the id of the number to confirm", widget=forms.TextInput(attrs={"autocomplete": "off"})
    )

    def __init__(self, *args: Any, phone_number_id: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.expected = phone_number_id

    def clean_phone_number_id(self) -> str:
        given: str = self.cleaned_data["phone_number_id"]
        if given.strip() != self.expected:
            raise ValidationError("This is not the id of the number.")
        return given
