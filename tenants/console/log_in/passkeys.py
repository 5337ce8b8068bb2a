"""Passkeys as the service changes allauth's: form of a new one, and removal that leaves staff a second factor."""

from typing import Any

from allauth.mfa.adapter import get_adapter
from allauth.mfa.models import Authenticator
from allauth.mfa.webauthn.forms import AddWebAuthnForm
from allauth.mfa.webauthn.views import RemoveWebAuthnView
from django import forms
from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect

MOST_PASSKEYS = 20
"""Passkeys of a person: the log-in page lists them all to the browser."""


class AddPasskeyForm(AddWebAuthnForm):  # type: ignore[misc]
    """Name of a new passkey, and whether it opens the account without the password."""

    name = forms.CharField(label="Name", max_length=100, required=False, help_text="For example work laptop.")
    passwordless = forms.BooleanField(
        label="Log in with it alone, without the password",
        required=False,
        initial=True,
        help_text="The device then asks for your finger, face or PIN.",
    )

    def clean(self) -> dict[str, Any]:
        kind = Authenticator.Type.WEBAUTHN
        if Authenticator.objects.filter(user=self.user, type=kind).count() >= MOST_PASSKEYS:
            raise forms.ValidationError(f"An account has at most {MOST_PASSKEYS} passkeys. Remove one first.")
        cleaned: dict[str, Any] = super().clean()
        return cleaned


class RemovePasskey(RemoveWebAuthnView):  # type: ignore[misc]
    """Removing a passkey, unless it is the last second factor of somebody who must have one."""

    def form_valid(self, form: forms.Form) -> HttpResponse:
        if not get_adapter().can_delete_authenticator(self.get_object()):
            messages.error(self.request, "Staff need a second factor: add another one first.")
            return HttpResponseRedirect(str(self.success_url))
        removed: HttpResponse = super().form_valid(form)
        return removed
