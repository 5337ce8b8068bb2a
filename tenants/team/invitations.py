"""Invitations to a tenant's team: a mailed link lets somebody choose a password and become a member with a role.

The link is signed and works once, within 24 hours. Only its page, which the owner of the mailbox opens, says whether
the address already has an account. The member who invites does not learn this.
"""

from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings
from django.core import signing
from django.db import IntegrityError, transaction

from gateway.api.errors import Conflict, NotFound
from gateway.clock import now
from gateway.database.partitions import delete_free
from gateway.roles import Role
from tenants import audit, mail
from tenants.credentials import log_in
from tenants.models import Invitation, Tenant, User
from tenants.team.members import lock_team, require_room

LIFETIME = timedelta(hours=24)
"""How long the link of an invitation works."""
MAILS_A_DAY = 30
"""The maximum number of invitations of a tenant in 24 hours. Without this limit, a tenant could flood other people's
mailboxes.
"""
KEPT = timedelta(days=7)
_SIGNER = signing.TimestampSigner(salt="tenants.team.invitations")


class InvitationLinkError(Exception):
    """The invitation link is wrong, too old, used or withdrawn."""


class AddressTakenError(Exception):
    """The invited address already has an account. A login belongs to one tenant."""


def invite(*, tenant_id: UUID, email: str, role: str, actor_user_id: int) -> Invitation:
    """Mail an invitation link to an address. An open invitation of the same address ends. Raises Conflict if the
    address is already in the team, the team is full, or the limit of mails is reached. Raises Forbidden for an actor
    who is not an owner.
    """
    email = email.lower()
    with transaction.atomic():
        tenant = lock_team(tenant_id, actor_user_id=actor_user_id)
        if User.objects.filter(tenant_id=tenant_id, email=email).exists():
            raise Conflict("This address belongs to your team already.")
        _end_open(tenant_id, email=email)
        _check_bounds(tenant_id)
        invitation = Invitation.objects.create(
            tenant=tenant, email=email, role=Role(role).value, invited_by_id=actor_user_id
        )
        _record("team.invite", invitation, actor_user_id)
        mail.send(
            to=email,
            template="invitation",
            context={
                "tenant": tenant,
                "role": invitation.get_role_display(),
                "link": link_for(invitation),
                "inviter": User.objects.get(pk=actor_user_id).email,
            },
        )
    return invitation


def send_again(*, tenant_id: UUID, invitation_id: UUID, actor_user_id: int) -> Invitation:
    """Send a new mail with a new link. The previous link stops working. Raises NotFound, Conflict, Forbidden."""
    found = _open(tenant_id, invitation_id)
    return invite(tenant_id=tenant_id, email=found.email, role=found.role, actor_user_id=actor_user_id)


def withdraw(*, tenant_id: UUID, invitation_id: UUID, actor_user_id: int) -> None:
    """Disable an invitation's link. Raises NotFound, Forbidden."""
    with transaction.atomic():
        lock_team(tenant_id, actor_user_id=actor_user_id)
        invitation = _open(tenant_id, invitation_id)
        _end_open(tenant_id, email=invitation.email)
        _record("team.withdraw", invitation, actor_user_id)


def link_for(invitation: Invitation) -> str:
    """The link of an invitation."""
    return f"{settings.APP_URL}/invitation/{_SIGNER.sign(invitation.id.hex)}"


def expires_at(invitation: Invitation) -> datetime:
    """When the link of an invitation expires."""
    return invitation.created_at + LIFETIME


def is_expired(invitation: Invitation) -> bool:
    """Whether the link of an invitation has expired."""
    return expires_at(invitation) <= now()


def find(token: str) -> Invitation:
    """The open invitation that a link's token names. Raises InvitationLinkError."""
    try:
        invitation_id = UUID(_SIGNER.unsign(token, max_age=LIFETIME))
    except (signing.BadSignature, ValueError):
        raise InvitationLinkError from None
    found = Invitation.objects.open().select_related("tenant").filter(pk=invitation_id).first()
    if found is None:
        raise InvitationLinkError
    return found


def accept(token: str, *, password: str) -> User:
    """Create the invited member. Raises InvitationLinkError for an invalid link and for the second of two simultaneous
    calls. Raises AddressTakenError for an address that has an account.
    """
    tenant_id = find(token).tenant_id
    try:
        with transaction.atomic():
            # This is the lock of the team. Without it, an invitation could be accepted while it is withdrawn or sent
            # again.
            Tenant.objects.select_for_update(of=("self",), no_key=True).get(pk=tenant_id)
            return _accept(find(token), password)
    except IntegrityError:
        raise AddressTakenError from None


def _accept(invitation: Invitation, password: str) -> User:
    if User.objects.filter(email=invitation.email).exists():
        raise AddressTakenError
    user = User.objects.create_user(
        invitation.email, password, tenant=invitation.tenant, role=invitation.role
    )
    log_in.use_address(user)
    _end_open(invitation.tenant_id, email=invitation.email)
    _record("team.join", invitation, user.pk)
    return user


def prune() -> int:
    """Delete invitations a week after they were sent. Returns the number of rows."""
    return delete_free(Invitation.objects.filter(created_at__lt=now() - KEPT))


def _open(tenant_id: UUID, invitation_id: UUID) -> Invitation:
    found = Invitation.objects.for_tenant(tenant_id).open().filter(pk=invitation_id).first()
    if found is None:
        raise NotFound("There is no such open invitation.")
    return found


def _end_open(tenant_id: UUID, *, email: str) -> None:
    Invitation.objects.for_tenant(tenant_id).open().filter(email=email).update(ended_at=now())


def _check_bounds(tenant_id: UUID) -> None:
    own = Invitation.objects.for_tenant(tenant_id)
    require_room(tenant_id, invited=own.open().filter(created_at__gt=now() - LIFETIME).count())
    if own.filter(created_at__gt=now() - timedelta(days=1)).count() >= MAILS_A_DAY:
        raise Conflict(f"At most {MAILS_A_DAY} invitations are sent in 24 hours. Try again tomorrow.")


def _record(action: str, invitation: Invitation, actor_user_id: int) -> None:
    audit.record(
        action=action,
        target_type="invitation",
        target_id=invitation.id,
        tenant_id=invitation.tenant_id,
        actor_user_id=actor_user_id,
        details={"email": invitation.email, "role": invitation.role},
    )
