"""Console pages of the team: people, roles and invitations; and the page that an invitation's link opens."""

from uuid import UUID

from allauth.mfa.models import Authenticator
from django.contrib import messages
from django.db.models import Exists, OuterRef
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from gateway.api.errors import Conflict
from gateway.roles import Area
from tenants.console.forms import SIGNED_UP_AS
from tenants.console.frame import Visit, console_page, or_404, require_active, told
from tenants.console.team_forms import InvitationForm, InviteForm, RoleForm
from tenants.invitation_models import Invitation
from tenants.models import User
from tenants.team import invitations, members


@require_http_methods(["GET", "HEAD", "POST"])
@console_page(Area.SETTINGS)
def team(request: HttpRequest, visit: Visit) -> HttpResponse:
    """The people and the open invitations; POST invites."""
    form = InviteForm(request.POST or None)
    if request.method == "POST":
        require_active(visit)
        if form.is_valid():
            try:
                sent = invitations.invite(
                    tenant_id=visit.tenant.id, actor_user_id=visit.user.pk, **form.cleaned_data
                )
            except Conflict as error:
                form.add_error(None, error.text)
            else:
                messages.success(request, f"The invitation is on its way to {sent.email}.")
                return redirect("console_team")
    factors = Authenticator.objects.filter(user=OuterRef("pk")).exclude(
        type=Authenticator.Type.RECOVERY_CODES
    )
    people = User.objects.filter(tenant=visit.tenant, is_active=True).annotate(secured=Exists(factors))
    return render(
        request,
        "console/team/team.html",
        {
            "form": form,
            "people": people.order_by("email"),
            "only_owner": members.only_owner(visit.tenant.id),
            "invitations": Invitation.objects.for_tenant(visit.tenant.id).open().order_by("-id"),
        },
        status=400 if form.errors else 200,
    )


@require_http_methods(["GET", "HEAD", "POST"])
@console_page(Area.SETTINGS)
def change_role(request: HttpRequest, visit: Visit, user_id: int) -> HttpResponse:
    """The form with a person's role."""
    with or_404():
        member = members.find(tenant_id=visit.tenant.id, user_id=user_id)
    form = RoleForm(request.POST or None, initial={"role": member.role})
    if request.method == "POST" and form.is_valid():
        with told(request):
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


@require_http_methods(["GET", "HEAD", "POST"])
@console_page(Area.SETTINGS)
def remove(request: HttpRequest, visit: Visit, user_id: int) -> HttpResponse:
    """A page that says what removing does; POST does it."""
    with or_404():
        member = members.find(tenant_id=visit.tenant.id, user_id=user_id)
    if request.method == "POST":
        with told(request):
            members.remove(tenant_id=visit.tenant.id, user_id=user_id, actor_user_id=visit.user.pk)
            messages.success(request, f"{member.email} has no access any more.")
        return redirect("console_team")
    return render(request, "console/team/remove.html", {"member": member})


@require_POST
@console_page(Area.SETTINGS)
def send_again(request: HttpRequest, visit: Visit, invitation_id: UUID) -> HttpResponse:
    """Send an invitation with a new link."""
    require_active(visit)
    with told(request):
        sent = invitations.send_again(
            tenant_id=visit.tenant.id, invitation_id=invitation_id, actor_user_id=visit.user.pk
        )
        messages.success(request, f"A new invitation is on its way to {sent.email}. The former link is dead.")
    return redirect("console_team")


@require_POST
@console_page(Area.SETTINGS)
def withdraw(request: HttpRequest, visit: Visit, invitation_id: UUID) -> HttpResponse:
    """Make an invitation's link stop working."""
    with told(request):
        invitations.withdraw(
            tenant_id=visit.tenant.id, invitation_id=invitation_id, actor_user_id=visit.user.pk
        )
        messages.success(request, "The invitation is withdrawn. Its link does not work any more.")
    return redirect("console_team")


@sensitive_post_parameters("password")
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def invitation(request: HttpRequest, token: str) -> HttpResponse:
    """The mailed link: a form with a password, because mail scanners open links; only POST makes the person."""
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
