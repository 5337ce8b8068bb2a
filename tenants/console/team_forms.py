"""Forms of the team pages: invite a person, change a role, accept an invitation."""

from typing import Any

from django import forms
from django.contrib.auth.password_validation import validate_password

from gateway.roles import Role
from tenants.console.forms import PASSWORD_HELP
from tenants.models import User

_ROLES = [
    (Role.OWNER, "Owner"),
    (Role.DEVELOPER, "Developer"),
    (Role.BILLING, "Billing"),
    (Role.READ_ONLY, "Read only"),
]
_WHAT_ROLES_DO = (
    "An owner does everything. A developer has numbers, messages, webhooks and API keys, and no billing. Billing has "
    "invoices, autopay and the billing profile, and no messages. Read only sees everything and changes nothing."
)


class RoleForm(forms.Form):
    """The role of a person."""

    role = forms.ChoiceField(label="Role", choices=_ROLES, help_text=_WHAT_ROLES_DO)


class InviteForm(forms.Form):
    """Who is invited, and as what."""

    email = forms.EmailField(
        label="Email", max_length=254, widget=forms.EmailInput(attrs={"autocomplete": "off"})
    )
    role = forms.ChoiceField(label="Role", choices=_ROLES, initial=Role.DEVELOPER, help_text=_WHAT_ROLES_DO)


class InvitationForm(forms.Form):
    """The password of a person who accepts."""

    password = forms.CharField(
        label="Password",
        max_length=128,
        strip=False,
        help_text=PASSWORD_HELP,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )

    def __init__(self, *args: Any, email: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.email = email

    def clean_password(self) -> str:
        password: str = self.cleaned_data["password"]
        validate_password(password, User(email=self.email))
        return password
