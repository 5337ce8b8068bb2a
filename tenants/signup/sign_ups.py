"""Hosted sign-up: form → mailed link → confirmation → a tenant that waits for approval (decision "Sign-up").

Called by the console pages. For an email address that has an account, the mail differs but the page is the same, so the
form never reveals who has an account. The confirmation creates the user and the tenant from the form that the link
belongs to. The page of the link asks for the password of that form, except in the browser that sent the form. So nobody
can set a password or a business for another person's address.
"""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import timedelta
from uuid import UUID

from django.conf import settings
from django.contrib.auth.hashers import make_password
from django.core import signing
from django.db import IntegrityError, transaction

from gateway.api.errors import Conflict
from gateway.clock import now
from gateway.database.partitions import delete_free
from tenants import audit, mail
from tenants.credentials import key_cache, log_in
from tenants.models import SignUp, Tenant, User
from tenants.signals import application_corrected, sandbox_wanted
from tenants.signup import screening

LINK_LIFETIME = timedelta(hours=24)
KEPT_UNCONFIRMED = timedelta(days=7)
# A new salt would make all mailed links invalid.
_SIGNER = signing.TimestampSigner(salt="tenants.signup.registration")


class ConfirmationLinkError(Exception):
    """The confirmation link is wrong, too old or used."""


class InvalidPhoneError(ValueError):
    """The text is not a phone number, or the number has no country code. The message is for the person who typed it."""


def parse_phone(typed: str) -> str:
    """The phone number with its country code, as digits after a plus. An Indian mobile number needs no code.

    Raises InvalidPhoneError.
    """
    phone = re.sub(r"[\s().-]", "", typed)
    if re.fullmatch(r"0?[6-9]\d{9}", phone):
        phone = f"+91{phone[-10:]}"
    if not re.fullmatch(r"\+[1-9]\d{7,14}", phone):
        raise InvalidPhoneError("Give the number with its country code, e.g. +91 98000 00001.")
    return phone


@dataclass(frozen=True, slots=True)
class Application:
    """The details of a business as typed into the form. `console.sign_up.ApplicationForm` has checked it."""

    company: str
    website: str
    tax_id: str
    tax_id_type: str
    address: str
    city: str
    state_code: str
    pin_code: str
    phone: str


def start(
    application: Application,
    *,
    email: str,
    password: str,
    ip: str | None,
    agreed_texts: Mapping[str, str] | None = None,
) -> UUID | None:
    """Store the form and mail its link. An address that has an account gets a mail about that account instead.

    Returns the id of the stored form, or None for an address that has an account. `agreed_texts` has the digests of the
    texts that the form named.
    """
    email = email.lower()
    # The password is hashed for every address, so the response time does not reveal who has an account.
    hashed = make_password(password)
    with transaction.atomic():
        if User.objects.filter(email=email).exists():
            mail.send(to=email, template="account_exists")
            return None
        sign_up = SignUp.objects.create(
            **asdict(application), email=email, password=hashed, ip=ip, agreed_texts=agreed_texts or {}
        )
        _mail_link(sign_up)
    return sign_up.id


def start_again(sign_up_id: UUID | None, *, email: str) -> None:
    """Mail a link of an unconfirmed sign-up again. An address that has an account gets the mail about that account
    instead. The form must stay stored for as long as the link is valid.
    """
    with transaction.atomic():
        oldest = now() - (KEPT_UNCONFIRMED - LINK_LIFETIME)
        waiting = SignUp.objects.filter(email=email, confirmed_at=None, created_at__gt=oldest)
        found = waiting.filter(pk=sign_up_id).first() if sign_up_id else None
        if found is not None:
            _mail_link(found)
        elif User.objects.filter(email=email).exists():
            mail.send(to=email, template="account_exists")


def _mail_link(sign_up: SignUp) -> None:
    mail.send(
        to=sign_up.email,
        template="confirm_sign_up",
        context={"company": sign_up.company, "link": link_for(sign_up)},
    )


def link_for(sign_up: SignUp) -> str:
    """The single-use link of a sign-up, valid for 24 hours."""
    return f"{settings.APP_URL}/sign-up/confirm/{_SIGNER.sign(sign_up.id.hex)}"


def find(token: str) -> SignUp:
    """The unconfirmed sign-up that a link's token names. Raises ConfirmationLinkError."""
    try:
        sign_up_id = UUID(_SIGNER.unsign(token, max_age=LINK_LIFETIME))
    except (signing.BadSignature, ValueError):
        raise ConfirmationLinkError from None
    sign_up = SignUp.objects.filter(pk=sign_up_id, confirmed_at__isnull=True).first()
    if sign_up is None:
        raise ConfirmationLinkError
    return sign_up


def confirm(token: str) -> Tenant:
    """Create the user and the tenant of a sign-up. Raises ConfirmationLinkError for an invalid link, and for the second
    of two simultaneous calls.
    """
    try:
        with transaction.atomic():
            sign_up = SignUp.objects.select_for_update().get(pk=find(token).pk)
            if sign_up.confirmed_at is not None:
                raise ConfirmationLinkError
            return _confirm(sign_up)
    except IntegrityError:
        # Another sign-up with the same address was confirmed at the same time.
        raise ConfirmationLinkError from None


def _confirm(sign_up: SignUp) -> Tenant:
    tenant = Tenant.objects.create(
        name=sign_up.company,
        created_via="signup",
        contact_email=sign_up.email,
        website=sign_up.website,
        tax_id=sign_up.tax_id,
        tax_id_type=sign_up.tax_id_type,
        email_domain=screening.registrable(sign_up.email.rpartition("@")[2]),
        flags=screening.compute(sign_up),
    )
    user = User.objects.create(email=sign_up.email, password=sign_up.password, tenant=tenant)
    log_in.use_address(user)
    sign_up.tenant, sign_up.confirmed_at, sign_up.password = tenant, now(), ""
    sign_up.save(update_fields=["tenant", "confirmed_at", "password"])
    audit.record(
        action="tenant.sign_up",
        target_type="tenant",
        target_id=tenant.id,
        tenant_id=tenant.id,
        actor_user_id=user.pk,
        details={"flags": [flag["code"] for flag in tenant.flags]},
    )
    transaction.on_commit(lambda: key_cache.write_tenant(tenant))
    screening.after_commit(tenant)
    sandbox_wanted.send(Tenant, tenant_id=tenant.id)
    return tenant


def apply_again(application: Application, *, tenant_id: UUID, actor_user_id: int | None = None) -> Tenant:
    """Correct the application of a tenant that waits or was rejected. The tenant then waits for approval again.

    The audit entry has the previous answers. Raises Conflict for a tenant in another status, and for one that did not
    sign up in the console.
    """
    with transaction.atomic():
        tenant = Tenant.objects.select_for_update(of=("self",)).get(pk=tenant_id)
        sign_up = SignUp.objects.filter(tenant=tenant).first()
        if sign_up is None or tenant.status not in {Tenant.Status.PENDING_APPROVAL, Tenant.Status.REJECTED}:
            raise Conflict("This application has been decided already.", details={"status": tenant.status})
        before = {name: getattr(sign_up, name) for name in Application.__slots__}
        before |= {"status": tenant.status, "rejected_reason": tenant.rejected_reason}
        for name, value in asdict(application).items():
            setattr(sign_up, name, value)
        sign_up.save(update_fields=Application.__slots__)
        own_rejection = _own_rejection(tenant)
        tenant.name, tenant.website = sign_up.company, sign_up.website
        tenant.tax_id, tenant.tax_id_type = sign_up.tax_id, sign_up.tax_id_type
        tenant.status, tenant.rejected_reason = Tenant.Status.PENDING_APPROVAL, None
        tenant.flags = [*screening.compute(sign_up), *own_rejection]
        tenant.save(
            update_fields=[
                "name", "website", "tax_id", "tax_id_type", "status", "rejected_reason", "flags",
            ]
        )  # fmt: skip
        audit.record(
            action="tenant.apply_again",
            target_type="tenant",
            target_id=tenant.id,
            tenant_id=tenant.id,
            actor_user_id=actor_user_id,
            details={"before": before, "after": asdict(application) | {"status": tenant.status}},
        )
        application_corrected.send(Tenant, tenant_id=tenant.id)
        transaction.on_commit(lambda: key_cache.write_tenant(tenant))
        screening.after_commit(tenant)
    return tenant


def _own_rejection(tenant: Tenant) -> list[screening.Flag]:
    """The flag of the tenant's own last rejection, if any. It stays when a tenant that waits corrects its form."""
    code, whose = "previously_rejected", "This business: "
    if tenant.rejected_reason:
        return [screening.flag(code, "high", f"{whose}{tenant.rejected_reason}")]
    return [flag for flag in tenant.flags if flag["code"] == code and flag["detail"].startswith(whose)]


def prune_unconfirmed() -> int:
    """Delete sign-ups that were not confirmed within a week. Returns the number of rows."""
    old = SignUp.objects.filter(confirmed_at__isnull=True, created_at__lt=now() - KEPT_UNCONFIRMED)
    return delete_free(old)


def delete_personal_data(*, tenant_id: UUID) -> None:
    """Delete the personal data in the application of a tenant that closes. Company, website and tax id stay, because
    later applications are compared with them. The digests of the texts that the person agreed to stay as well.

    The contact address of a tenant that was never approved is deleted too. Otherwise invoices are mailed to it.
    """
    SignUp.objects.filter(tenant_id=tenant_id).update(
        email="", phone="", ip=None, address="", city="", pin_code=""
    )
    Tenant.objects.filter(pk=tenant_id, approved_at=None).update(contact_email=None)
