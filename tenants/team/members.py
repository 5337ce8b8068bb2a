"""Members of a tenant's team: their roles and their removal. Called by the console's team pages.

Every change of a team locks its tenant, so simultaneous changes run one after the other. A tenant always has an owner,
and a member who was removed meanwhile can change nothing more.
"""

from collections.abc import Collection
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet

from gateway.api.errors import Conflict, Forbidden, NotFound
from gateway.clock import now
from gateway.roles import Role
from tenants import audit
from tenants.credentials import api_keys
from tenants.models import LINK_LIFETIME, ApiKey, AppConnection, Invitation, Tenant, User

MOST_PEOPLE = 50
"""Most members and open invitations of a tenant."""


def lock_team(tenant_id: UUID, *, actor_user_id: int) -> Tenant:
    """Lock a team until the transaction ends. Raises Forbidden for an actor who is no longer an owner.

    Rows that refer to the tenant can still be written: messages and events continue.
    """
    tenant = Tenant.objects.select_for_update(of=("self",), no_key=True).get(pk=tenant_id)
    if not _owners(tenant_id).filter(pk=actor_user_id).exists():
        raise Forbidden("Only an owner of the account can change its team.")
    return tenant


def require_room(tenant_id: UUID) -> None:
    """Raise Conflict when the team is full. Call it under `lock_team`."""
    invited = Invitation.objects.for_tenant(tenant_id).open().filter(created_at__gt=now() - LINK_LIFETIME)
    people = User.objects.filter(tenant_id=tenant_id, is_active=True).count()
    if people + invited.count() >= MOST_PEOPLE:
        raise Conflict(f"A team has at most {MOST_PEOPLE} people, open invitations included.")


def find(*, tenant_id: UUID, user_id: int) -> User:
    """A member of the team. Raises NotFound, also for members of other teams."""
    member = User.objects.filter(tenant_id=tenant_id, is_active=True, pk=user_id).first()
    if member is None:
        raise NotFound("There is no such person in your team.")
    return member


def only_owner(tenant_id: UUID) -> int | None:
    """The only owner of a tenant, who can be neither removed nor given another role. None when there are several."""
    owners = list(_owners(tenant_id).values_list("pk", flat=True)[:2])
    return owners[0] if len(owners) == 1 else None


def change_role(*, tenant_id: UUID, user_id: int, role: str, actor_user_id: int) -> User:
    """Change the role of a member, from the member's next request on. Raises NotFound, Conflict, Forbidden."""
    with transaction.atomic():
        lock_team(tenant_id, actor_user_id=actor_user_id)
        member = find(tenant_id=tenant_id, user_id=user_id)
        former, member.role = member.role, Role(role).value
        if former == member.role:
            return member
        if former == Role.OWNER:
            _require_another_owner(member)
        member.save(update_fields=["role"])
        audit.record(
            action="team.role",
            target_type="user",
            target_id=member.pk,
            tenant_id=tenant_id,
            actor_user_id=actor_user_id,
            details={"email": member.email, "before": {"role": former}, "after": {"role": member.role}},
        )
    return member


def remove(*, tenant_id: UUID, user_id: int, actor_user_id: int, ending_keys: Collection[UUID] = ()) -> None:
    """End a member's access at once, including the member's invitations and connected apps.

    Raises NotFound, Conflict, Forbidden.

    Of the keys that the member made (`api_keys.made_by`), those in `ending_keys` are revoked. The audit entry names the
    revoked keys and the remaining ones.

    The account is deleted, so another tenant can invite the address; the audit log still has the address. Staff only
    leave the team. Mails of the tenant that went to the member's address go to another owner.
    """
    with transaction.atomic():
        tenant = lock_team(tenant_id, actor_user_id=actor_user_id)
        member = find(tenant_id=tenant_id, user_id=user_id)
        if member.role == Role.OWNER:
            _require_another_owner(member)
        _take_over_mails(tenant, member)
        Invitation.objects.for_tenant(tenant_id).open().filter(invited_by=member).update(ended_at=now())
        AppConnection.objects.for_tenant(tenant_id).filter(user=member).delete()
        made = list(api_keys.made_by(tenant_id=tenant_id, user_id=user_id).order_by("id"))
        ended = [key for key in made if key.pk in ending_keys]
        for key in ended:
            keys = ApiKey.objects.for_tenant(tenant_id)
            api_keys.revoke(keys=keys, key_id=key.pk, actor_user_id=actor_user_id)
        keys_after = {
            "ended_keys": [key.prefix for key in ended],
            "kept_keys": [key.prefix for key in made if key not in ended],
        }
        audit.record(
            action="team.remove",
            target_type="user",
            target_id=member.pk,
            tenant_id=tenant_id,
            actor_user_id=actor_user_id,
            details={
                "email": member.email,
                "before": {"role": member.role},
                "after": {"role": None}
                | {name: prefixes for name, prefixes in keys_after.items() if prefixes},
            },
        )
        _end_access(member)


def remove_all(*, tenant_id: UUID, actor_user_id: int | None) -> int:
    """End the access of all members of a tenant that closes, and all open invitations. Returns the number of members.

    The tenant's addresses stay, for its invoices.
    """
    with transaction.atomic():
        Tenant.objects.select_for_update(of=("self",), no_key=True).only("id").get(pk=tenant_id)
        Invitation.objects.for_tenant(tenant_id).open().update(ended_at=now())
        members = list(User.objects.filter(tenant_id=tenant_id).order_by("pk"))
        for member in members:
            audit.record(
                action="team.remove",
                target_type="user",
                target_id=member.pk,
                tenant_id=tenant_id,
                actor_user_id=actor_user_id,
                details={"email": member.email, "before": {"role": member.role}, "after": {"role": None}},
            )
            _end_access(member)
    return len(members)


def _end_access(member: User) -> None:
    """Delete a member who leaves. Staff only leave the team."""
    if member.is_staff:
        User.objects.filter(pk=member.pk).update(tenant=None)
    else:
        member.delete()


def _take_over_mails(tenant: Tenant, member: User) -> None:
    """Redirect mails from the address of a leaving member to another owner. Bills then go to the contact address."""
    heir = _owners(tenant.id).exclude(pk=member.pk).order_by("pk").first()
    if heir is not None and (tenant.contact_email or "").lower() == member.email:
        tenant.contact_email = heir.email
    if (tenant.billing_email or "").lower() == member.email:
        tenant.billing_email = None
    tenant.save(update_fields=["contact_email", "billing_email"])


def _require_another_owner(member: User) -> None:
    assert member.tenant_id is not None  # noqa: S101 - `find` asks for a tenant
    if not _owners(member.tenant_id).exclude(pk=member.pk).exists():
        raise Conflict("An account needs an owner: make somebody else an owner first.")


def _owners(tenant_id: UUID) -> QuerySet[User]:
    return User.objects.filter(tenant_id=tenant_id, is_active=True, role=Role.OWNER)
