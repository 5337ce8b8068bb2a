"""Members of a tenant's team: their roles and their removal. Called by the console's team pages.

Every change of a team locks its tenant, so simultaneous changes run one after the other. Therefore a tenant always
keeps an owner, and a member who was removed meanwhile cannot change anything.
"""

from collections.abc import Collection
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet

from gateway.api.errors import Conflict, Forbidden, NotFound
from gateway.clock import now
from gateway.roles import Area, Role, may_read
from tenants import audit
from tenants.connected_apps import connections
from tenants.credentials import api_keys
from tenants.models import ApiKey, AppConnection, Export, Invitation, Tenant, User

MOST_PEOPLE = 50
"""The maximum total of members and open invitations of a tenant."""


def lock_team(tenant_id: UUID, *, actor_user_id: int) -> Tenant:
    """Lock a team until the transaction ends. Returns its tenant. Raises Forbidden for an actor who is not an owner.

    Rows that refer to the tenant can still be written, so messages and events are not delayed.
    """
    tenant = Tenant.objects.select_for_update(of=("self",), no_key=True).get(pk=tenant_id)
    if not owners(tenant_id).filter(pk=actor_user_id).exists():
        raise Forbidden("Only an owner of the account can change its team.")
    return tenant


def require_room(tenant_id: UUID, *, invited: int) -> None:
    """Raise Conflict when the team with its invited people is full. Call it under `lock_team`."""
    people = User.objects.filter(tenant_id=tenant_id, is_active=True).count()
    if people + invited >= MOST_PEOPLE:
        raise Conflict(f"A team has at most {MOST_PEOPLE} people, open invitations included.")


def find(*, tenant_id: UUID, user_id: int) -> User:
    """The member of the team with this id, active or not. Raises NotFound, also for a member of another team."""
    member = User.objects.filter(tenant_id=tenant_id, pk=user_id).first()
    if member is None:
        raise NotFound("There is no such person in your team.")
    return member


_NEEDS_OWNER = "An account needs an owner: make somebody else an owner first."


def only_owner(tenant_id: UUID) -> int | None:
    """The id of a tenant's only owner. This owner cannot be removed or given another role. None when there are several
    owners.
    """
    found = list(owners(tenant_id).values_list("pk", flat=True)[:2])
    return found[0] if len(found) == 1 else None


def change_role(*, tenant_id: UUID, user_id: int, role: str, actor_user_id: int) -> User:
    """Change the role of a member. The new role applies from the member's next request. The open invitations of a
    former owner end, because with one of them the person could become an owner again. The tenant's mails to a former
    owner go to another owner, but bills stay with a role that may read them.

    Raises NotFound, Forbidden for an actor who is not an owner, and Conflict for the only owner.
    """
    with transaction.atomic():
        tenant = lock_team(tenant_id, actor_user_id=actor_user_id)
        former = find(tenant_id=tenant_id, user_id=user_id)
        if former.role == Role(role):
            return former
        if former.role == Role.OWNER:
            _require_another_owner(former)
            _end_invitations(tenant_id, former)
        member = find(tenant_id=tenant_id, user_id=user_id)
        member.role = Role(role).value
        before, after = _redirect_mails(tenant, former, member)
        member.save(update_fields=["role"])
        audit.record(
            action="team.role",
            target_type="user",
            target_id=member.pk,
            tenant_id=tenant_id,
            actor_user_id=actor_user_id,
            details={
                "email": member.email,
                "before": {"role": former.role} | before,
                "after": {"role": member.role} | after,
            },
        )
    return member


def _end_invitations(tenant_id: UUID, member: User) -> None:
    Invitation.objects.for_tenant(tenant_id).open().filter(invited_by=member).update(ended_at=now())


def remove(*, tenant_id: UUID, user_id: int, actor_user_id: int, ending_keys: Collection[UUID] = ()) -> None:
    """End a member's access at once. The open invitations that the member sent and the member's connected apps end too.

    Raises NotFound, Conflict, Forbidden.

    `ending_keys` names the keys to revoke among those that the member made (`api_keys.made_by`). The audit entry names
    the revoked keys and the remaining ones.

    The user is deleted, so another tenant can invite the address. The audit log still has the address. If the member is
    also staff, the user is not deleted, but leaves the team. The tenant's mails to the member's address go to another
    owner. Files that the member requested are kept.
    """
    with transaction.atomic():
        tenant = lock_team(tenant_id, actor_user_id=actor_user_id)
        member = find(tenant_id=tenant_id, user_id=user_id)
        if member.role == Role.OWNER:
            _require_another_owner(member)
        before, after = _redirect_mails(tenant, member, None)
        _end_invitations(tenant_id, member)
        connections.end_all(
            AppConnection.objects.for_tenant(tenant_id).filter(user=member),
            reason="member_removed",
            actor_user_id=actor_user_id,
        )
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
                "before": {"role": member.role} | before,
                "after": {"role": None}
                | after
                | {name: prefixes for name, prefixes in keys_after.items() if prefixes},
            },
        )
        _keep_exports(tenant, member)
        _end_access(member)


def require_owner_besides(*, tenant_id: UUID, user_id: int) -> None:
    """Raise Conflict if this member is a team's only owner. No owner leaves the team until the transaction ends."""
    Tenant.objects.select_for_update(of=("self",), no_key=True).only("id").get(pk=tenant_id)
    if only_owner(tenant_id) == user_id:
        raise Conflict(_NEEDS_OWNER)


def change_by_staff(
    member: User, *, former: User, actor_user_id: int | None
) -> tuple[dict[str, str | None], dict[str, str | None]]:
    """Do what follows when staff give a member another address, role, status or business. Returns the tenant's mail
    addresses that change, before and after.

    `former` is the member as stored, a member of a tenant. Call it in the transaction that stores `member`, before its
    row is changed: the tenant is locked first everywhere. The tenant's mails follow the member's address. The open
    invitations of a member who is deactivated, moved or given another role end, and mails that are no longer meant for
    the member go to another owner. If the member leaves the tenant, its audit log says so, and nothing is returned.
    """
    assert former.tenant_id is not None  # noqa: S101 - the caller asks
    tenant = Tenant.objects.select_for_update(of=("self",), no_key=True).get(pk=former.tenant_id)
    stays = member.tenant_id == former.tenant_id
    if not stays or (member.is_active, member.role) != (former.is_active, former.role):
        _end_invitations(tenant.id, member)
    before, after = _redirect_mails(tenant, former, member if stays and member.is_active else None)
    if stays:
        return before, after
    _keep_exports(tenant, member)
    audit.record(
        action="team.remove",
        target_type="user",
        target_id=member.pk,
        tenant_id=tenant.id,
        actor_user_id=actor_user_id,
        details={
            "email": former.email,
            "before": {"role": former.role} | before,
            "after": {"role": None} | after,
        },
    )
    return {}, {}


def remove_all(*, tenant_id: UUID, actor_user_id: int | None) -> int:
    """End the access of all members of a tenant that closes, and end all open invitations. Returns the number of
    members.

    The tenant's mail addresses stay, because its invoices are mailed to them.
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
    """Delete the user of a member who leaves. If the member is also staff, remove the user only from the team."""
    if member.is_staff:
        User.objects.filter(pk=member.pk).update(tenant=None)
    else:
        member.delete()


def _keep_exports(tenant: Tenant, member: User) -> None:
    """Keep the files that a member who leaves has requested: other members may have their links."""
    Export.objects.filter(tenant=tenant, user=member).update(user=None)


def _redirect_mails(
    tenant: Tenant, former: User, member: User | None
) -> tuple[dict[str, str | None], dict[str, str | None]]:
    """Redirect a tenant's mails to the address of a member who changes from `former` to `member`, or who loses access
    if `member` is None. Returns the addresses that change, before and after.

    Mails follow the member's new address. The contact address of a member who loses access or is no longer an owner
    becomes that of another owner. Bills of a member who loses access or may no longer read them go to the contact
    address.
    """
    contact: str | None = member.email if member else former.email
    bills = contact
    if member is None or (former.role == Role.OWNER and member.role != Role.OWNER):
        heir = owners(tenant.id).exclude(pk=former.pk).first()
        contact = heir.email if heir else contact
    if member is None or (may_read(former.role, Area.BILLING) and not may_read(member.role, Area.BILLING)):
        bills = None
    before: dict[str, str | None] = {}
    after: dict[str, str | None] = {}
    for name, address in (("contact_email", contact), ("billing_email", bills)):
        stored = getattr(tenant, name)
        if (stored or "").lower() == former.email != (address or "").lower():
            before[name], after[name] = stored, address
            setattr(tenant, name, address)
    tenant.save(update_fields=list(after))
    return before, after


def _require_another_owner(member: User) -> None:
    assert member.tenant_id is not None  # noqa: S101 - `find` asks for a tenant
    if not owners(member.tenant_id).exclude(pk=member.pk).exists():
        raise Conflict(_NEEDS_OWNER)


def owners(tenant_id: UUID) -> QuerySet[User]:
    """The active owners of a tenant, in the order in which they joined the service."""
    return User.objects.filter(tenant_id=tenant_id, is_active=True, role=Role.OWNER).order_by("pk")
