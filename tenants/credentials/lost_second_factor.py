"""A lost second factor: staff remove it, and the person chooses a new password through the mailbox.

The password ends as well, and with it every session and console token: who deceives staff still needs the mailbox.
"""

from allauth.mfa.models import Authenticator
from django.conf import settings
from django.db import transaction
from django.urls import reverse

from gateway.api.errors import Conflict, NotFound
from tenants import audit, mail
from tenants.models import User


def remove(*, user_id: int, reason: str, actor_user_id: int | None) -> User:
    """Remove every second factor of a person. Nobody does it for themselves (409)."""
    if user_id == actor_user_id:
        raise Conflict("Somebody else of the staff must do this for you.")
    with transaction.atomic():
        person = User.objects.select_for_update(no_key=True).filter(pk=user_id).first()
        if person is None:
            raise NotFound
        removed, _ = Authenticator.objects.filter(user=person).delete()
        if not removed:
            raise Conflict("This person has no second factor.")
        person.set_unusable_password()
        person.save(update_fields=["password"])
        audit.record(
            action="user.second_factor_lost",
            tenant_id=person.tenant_id,
            target_type="user",
            target_id=person.pk,
            actor_user_id=actor_user_id,
            details={"email": person.email, "reason": reason},
        )
        mail.send(
            to=person.email,
            template="second_factor_removed",
            context={"link": settings.APP_URL + reverse("account_reset_password")},
        )
    return person
