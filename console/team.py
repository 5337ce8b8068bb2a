"""Pages of the team: members, roles and invitations, and the page of an invitation's link."""

from collections.abc import Iterable
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from allauth.mfa.models import Authenticator
from django import forms
from django.contrib import messages
from django.contrib.auth.password_validation import validate_password
from django.db.models import Exists, OuterRef
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.formats import date_format
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from console.log_in_and_passkeys import PASSWORD_HELP, SIGNED_UP_AS
from console.visit import Visit, flash_errors, or_404, require_active
from gateway.api.errors import ServiceError
from gateway.roles import Role
from tenants.credentials import api_keys
from tenants.models import ApiKey, Invitation, User
from tenants.team import invitations, members

_ROLES = [
    (Role.OWNER, "Owner"),
    (Role.DEVELOPER, "Developer"),
    (Role.AGENT, "Agent"),
    (Role.BILLING, "Billing"),
    (Role.READ_ONLY, "Read only"),
]
_WHAT_ROLES_DO = (
    "Owner: everything. Developer: numbers, messages, webhooks and API keys, but not billing. Agent: reads and answers "
    "conversations and sees nothing else. Billing: invoices, autopay and the billing profile, but not messages. "
    "Read only: sees everything and changes nothing."
)


class RoleForm(forms.Form):
    """The role of a member."""

    role = forms.ChoiceField(label="Role", choices=_ROLES, help_text=_WHAT_ROLES_DO)


class RemovalForm(forms.Form):
    """The keys to revoke when the member who created them is removed."""

    keys = forms.TypedMultipleChoiceField(
        label="Revoke these keys too", required=False, coerce=UUID, widget=forms.CheckboxSelectMultiple
    )

    def __init__(self, *args: Any, keys: Iterable[ApiKey], zone: ZoneInfo, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["keys"].choices = [  # type: ignore[attr-defined]
            (str(key.pk), f"{key.name}, {key.environment}: {key.prefix}… ({_use(key, zone)})") for key in keys
        ]


def _use(key: ApiKey, zone: ZoneInfo) -> str:
    if key.last_used_at is None:
        return "never used"
    return f"last used {date_format(key.last_used_at.astimezone(zone), 'j M Y')}"


class InviteForm(forms.Form):
    """An invitation: address and role."""

    email = forms.EmailField(
        label="Email", max_length=254, widget=forms.EmailInput(attrs={"autocomplete": "off"})
    )
    role = forms.ChoiceField(label="Role", choices=_ROLES, initial=Role.DEVELOPER, help_text=_WHAT_ROLES_DO)


class InvitationForm(forms.Form):
    """The password of a person who accepts an invitation."""

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


def team(request: HttpRequest, visit: Visit) -> HttpResponse:
    """List the members and the open invitations. POST invites."""
    form = InviteForm(request.POST or None)
    if request.method == "POST":
        require_active(visit)
        if form.is_valid():
            try:
                sent = invitations.invite(
                    tenant_id=visit.tenant.id, actor_user_id=visit.user.pk, **form.cleaned_data
                )
            except ServiceError as error:
                form.add_error(None, error.text)
            else:
                messages.success(request, f"The invitation is on its way to {sent.email}.")
                return redirect("console_team")
    factors = Authenticator.objects.filter(user=OuterRef("pk")).exclude(
        type=Authenticator.Type.RECOVERY_CODES
    )
    people = User.objects.filter(tenant=visit.tenant).annotate(secured=Exists(factors))
    return render(
        request,
        "console/team/team.html",
        {
            "form": form,
            "people": people.order_by("email"),
            "only_owner": members.only_owner(visit.tenant.id),
            "invitations": [
                (invitation, invitations.expires_at(invitation), invitations.is_expired(invitation))
                for invitation in Invitation.objects.for_tenant(visit.tenant.id).open().order_by("-id")
            ],
        },
        status=400 if form.errors else 200,
    )


def change_role(request: HttpRequest, visit: Visit, user_id: int) -> HttpResponse:
    """Show the form with a member's role. POST changes the role."""
    with or_404():
        member = members.find(tenant_id=visit.tenant.id, user_id=user_id)
    form = RoleForm(request.POST or None, initial={"role": member.role})
    if request.method == "POST" and form.is_valid():
        with flash_errors(request):
            role = form.cleaned_data["role"]
            changed = members.change_role(
                tenant_id=visit.tenant.id, user_id=user_id, role=role, actor_user_id=visit.user.pk
            )
            messages.success(request, f"{changed.email} has the role {changed.get_role_display()}.")
        return redirect("console_team")
    return render(
        request,
        "console/team/role.html",
        {"member": member, "form": form},
        status=400 if form.errors else 200,
    )


def remove(request: HttpRequest, visit: Visit, user_id: int) -> HttpResponse:
    """Explain the effect of removing a member. POST removes the member."""
    with or_404():
        member = members.find(tenant_id=visit.tenant.id, user_id=user_id)
    made = api_keys.made_by(tenant_id=visit.tenant.id, user_id=user_id).order_by("-id")
    form = RemovalForm(request.POST if request.method == "POST" else None, keys=made, zone=visit.zone)
    if request.method == "POST" and form.is_valid():
        with flash_errors(request):
            members.remove(
                tenant_id=visit.tenant.id,
                user_id=user_id,
                actor_user_id=visit.user.pk,
                ending_keys=form.cleaned_data["keys"],
            )
            messages.success(request, f"{member.email} no longer has access.")
        return redirect("console_team")
    return render(
        request,
        "console/team/remove.html",
        {"member": member, "form": form},
        status=400 if form.errors else 200,
    )


def send_again(request: HttpRequest, visit: Visit, invitation_id: UUID) -> HttpResponse:
    """Send an invitation with a new link."""
    require_active(visit)
    with flash_errors(request):
        sent = invitations.send_again(
            tenant_id=visit.tenant.id, invitation_id=invitation_id, actor_user_id=visit.user.pk
        )
        messages.success(
            request, f"A new invitation is on its way to {sent.email}. The old link no longer works."
        )
    return redirect("console_team")


def withdraw(request: HttpRequest, visit: Visit, invitation_id: UUID) -> HttpResponse:
    """Withdraw an invitation. Its link no longer works."""
    with flash_errors(request):
        invitations.withdraw(
            tenant_id=visit.tenant.id, invitation_id=invitation_id, actor_user_id=visit.user.pk
        )
        messages.success(request, "The invitation is withdrawn. Its link no longer works.")
    return redirect("console_team")


@sensitive_post_parameters("password")
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def invitation(request: HttpRequest, token: str) -> HttpResponse:
    """The page of the mailed link: a form with a password. Only POST creates the member, because mail scanners open
    links.
    """
    try:
        found = invitations.find(token)
        form = InvitationForm(request.POST or None, email=found.email)
        if request.method == "POST" and form.is_valid():
            invitations.accept(token, password=form.cleaned_data["password"])
            request.session[SIGNED_UP_AS] = found.email
            return render(request, "console/team/joined.html", {"invitation": found})
    except invitations.InvitationLinkError:
        return render(request, "console/team/invitation_over.html", status=410)
    except invitations.AddressTakenError:
        return render(request, "console/team/address_taken.html", {"invitation": found}, status=409)
    return render(
        request,
        "console/team/invitation.html",
        {"invitation": found, "form": form},
        status=400 if form.errors else 200,
    )
