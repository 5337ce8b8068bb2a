"""Log-in: the console's changes to allauth's pages (passwords, passkeys, second step), and the page of
device log-ins.
"""

from typing import Any

from allauth.account.forms import ChangePasswordForm, LoginForm, ResetPasswordKeyForm
from allauth.core import context
from allauth.mfa.adapter import get_adapter
from allauth.mfa.base.forms import AuthenticateForm
from allauth.mfa.models import Authenticator
from allauth.mfa.webauthn.forms import AddWebAuthnForm
from allauth.mfa.webauthn.views import RemoveWebAuthnView
from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect, render

from console.keys import ENVIRONMENTS
from console.visit import Visit, require_active
from gateway.api.errors import NotFound
from tenants import device_login
from tenants.models import ApiKey

SIGNED_UP_AS = "signed_up_as"
"""The session key of the address to which the confirmation was sent."""


PASSWORD_HELP = "At least 12 characters. A sentence is easy to remember."
MOST_PASSKEYS = 20
"""The limit on passkeys for each person. It is needed because the log-in page sends the whole list to the browser."""


class LogInForm(LoginForm):  # type: ignore[misc]
    """allauth's log-in form. The email address is prefilled after a sign-up in the same browser."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.request is not None:
            self.fields["login"].initial = self.request.session.get(SIGNED_UP_AS)


class ChangePassword(ChangePasswordForm):  # type: ignore[misc]
    """allauth's form to change the password, with the help text of the sign-up."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["oldpassword"].label = "Current password"
        _name_new_password(self)


class NewPassword(ResetPasswordKeyForm):  # type: ignore[misc]
    """allauth's form for a new password after a reset mail, with the help text of the sign-up."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _name_new_password(self)


def _name_new_password(form: forms.Form) -> None:
    """Label the two fields of a new password. Their placeholders are removed, because they would only repeat the
    labels.
    """
    form.fields["password1"].label = "New password"
    form.fields["password1"].help_text = PASSWORD_HELP
    form.fields["password2"].label = "New password, again"
    for field in form.fields.values():
        field.widget.attrs.pop("placeholder", None)


class AddPasskeyForm(AddWebAuthnForm):  # type: ignore[misc]
    """The name of a new passkey, and whether the passkey logs in without the password."""

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
    """Removes a passkey, unless it is the last second factor of a person who must have a second factor."""

    def form_valid(self, form: forms.Form) -> HttpResponse:
        if not get_adapter().can_delete_authenticator(self.get_object()):
            messages.error(self.request, "Staff need a second factor: add another one first.")
            return HttpResponseRedirect(str(self.success_url))
        removed: HttpResponse = super().form_valid(form)
        return removed


class CodeForm(AuthenticateForm):  # type: ignore[misc]
    """The form for the code after the password: a code of the authenticator app, or a recovery code."""

    @property
    def has_app(self) -> bool:
        """Whether the person has an authenticator app, and not only recovery codes."""
        return bool(Authenticator.objects.filter(user=self.user, type=Authenticator.Type.TOTP).exists())

    def save(self) -> None:
        super().save()
        if self.authenticator.type == Authenticator.Type.RECOVERY_CODES:
            self.authenticator.refresh_from_db()
            left = len(self.authenticator.wrap().get_unused_codes())
            codes = (
                "no recovery code is"
                if left == 0
                else f"{left} recovery code{'s are' if left > 1 else ' is'}"
            )
            messages.warning(
                context.request,
                f"You used a recovery code: {codes} left. Make new ones, or another second factor, under Security.",
            )


class DeviceForm(forms.Form):
    """Confirms a device log-in, with the kind of key for the program."""

    code = forms.CharField(max_length=20, widget=forms.HiddenInput())
    environment = forms.ChoiceField(
        label="Environment", choices=ENVIRONMENTS, initial=ApiKey.Environment.TEST
    )

    def __init__(self, *args: Any, sandbox: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if sandbox:
            self.fields["environment"].choices = ENVIRONMENTS[:1]  # type: ignore[attr-defined]


def device(request: HttpRequest, visit: Visit) -> HttpResponse:
    """Ask for the code, then show the program that requests access. POST confirms or denies the request."""
    if request.method == "POST":
        require_active(visit)
    typed = (request.POST if request.method == "POST" else request.GET).get("code", "")[:20]
    if not typed:
        return _page(request, visit)
    if not device_login.may_look_up(visit.user):
        return render(request, "429.html", status=429)
    try:
        if request.method == "POST":
            return _decided(request, visit, typed)
        found = device_login.waiting(typed)
    except NotFound as error:
        return _page(request, visit, typed=typed, problem=error.text, status=404)
    form = DeviceForm(initial={"code": device_login.shown(found.user_code)}, sandbox=visit.tenant.sandbox)
    return _page(request, visit, found=found, code=device_login.shown(found.user_code), form=form)


def _decided(request: HttpRequest, visit: Visit, typed: str) -> HttpResponse:
    if "deny" in request.POST:
        device_login.deny(typed, user=visit.user)
        messages.success(request, "The program was refused.")
        return redirect("console_device")
    form = DeviceForm(request.POST, sandbox=visit.tenant.sandbox)
    if not form.is_valid():
        found = device_login.waiting(typed)
        return _page(
            request, visit, found=found, code=device_login.shown(found.user_code), form=form, status=400
        )
    device_login.confirm(
        typed, user=visit.user, tenant=visit.tenant, environment=form.cleaned_data["environment"]
    )
    return _page(request, visit, confirmed=True)


def _page(request: HttpRequest, visit: Visit, *, status: int = 200, **context: object) -> HttpResponse:
    return render(request, "console/device.html", {"tenant": visit.tenant, **context}, status=status)
