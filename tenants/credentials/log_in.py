"""Log-in, passwords and second factors of members and staff: adaptations of django-allauth.

Sign-up does not use allauth (`signup/sign_ups.py`). The console session API shares the failure limits of the log-in
page through `AccountAdapter.authenticate`.

Passwords are hashed with Argon2id, a few at a time in a process. The parameters are the smallest ones in OWASP's
password storage cheat sheet: 19 MiB and two passes. They take much less CPU time than Django's default, a million
rounds of PBKDF2. An older hash is replaced at its user's next log-in.

Staff can remove a lost second factor. The removal also deletes the password, and ends all sessions and console tokens.
The user then chooses a new password by a mailed link, so an attacker who deceives staff still needs the mailbox.
"""

import threading
from datetime import timedelta
from typing import Any, ClassVar

from allauth.account.adapter import DefaultAccountAdapter, get_adapter
from allauth.account.models import EmailAddress
from allauth.core import ratelimit
from allauth.core.internal import ratelimit as counters
from allauth.mfa import app_settings
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal.auth import TOTP
from cryptography.fernet import InvalidToken
from django.conf import settings
from django.contrib.auth.hashers import Argon2PasswordHasher
from django.contrib.sessions.models import Session
from django.core.cache import cache
from django.core.exceptions import ValidationError
from django.db import transaction
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import reverse

from gateway import encryption
from gateway.api.errors import Conflict, Forbidden, NotFound, RateLimited, Unauthorized
from gateway.database.partitions import delete_before
from gateway.encryption import decrypt, encrypt, rotated
from tenants import audit, mail
from tenants.models import User


def use_address(user: User) -> None:
    """Make a user's address the only one that logs in and gets mails for a new password.

    Call it in the transaction that stores the address.
    """
    EmailAddress.objects.filter(user=user).delete()
    EmailAddress.objects.create(user=user, email=user.email, verified=True, primary=True)


def prune_sessions() -> int:
    """Delete the expired sessions of browsers, with the sign-ups and invitations that they name. Returns how many."""
    return delete_before(Session, "expire_date", timedelta())


def remove(*, user_id: int, reason: str, actor_user_id: int | None) -> User:
    """Remove all second factors of a user, and the password. Raises NotFound for an unknown user, and Conflict when the
    user has no second factor or is the staff member who acts.
    """
    if user_id == actor_user_id:
        raise Conflict("Another member of staff must do this for you.")
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


AT_ONCE = 4
"""The maximum number of password hashes that a process computes at once. In a flood of log-ins, every thread would
otherwise use 19 MiB.
"""

room = threading.BoundedSemaphore(AT_ONCE)


class Argon2idHasher(Argon2PasswordHasher):
    time_cost = 2
    memory_cost = 19 * 1024
    parallelism = 1

    def encode(self, password: str, salt: str) -> str:
        """Return the hash to store."""
        with room:
            return super().encode(password, salt)

    def verify(self, password: str, encoded: str) -> bool:
        """Whether a password matches a stored hash."""
        with room:
            return super().verify(password, encoded)


def clear_failures(request: HttpRequest, *, action: str, key: str, is_counted: bool = True) -> None:
    """Clear the failures of one account. `is_counted` says that this request, which succeeds, was counted as one.

    allauth also clears those of the IP address. So somebody with one account could try the passwords of others
    without a limit.
    """
    rates = {"app": "allauth.account", "action": action}
    for rate in counters.get_rates(**rates):
        name = counters.get_cache_key(request, **rates, rate=rate, key=key)
        with counters.cache_lock(name) as locked:
            if locked and rate.per == "key":
                cache.delete(name)
            elif locked and is_counted:
                # The newest comes first.
                cache.set(name, cache.get(name, [])[1:], rate.duration)


ratelimit.clear = clear_failures  # also for the pages of second factors
PURPOSE = "second_factor"


class AccountAdapter(DefaultAccountAdapter):  # type: ignore[misc]
    """Sends mails through `mail.py`. Counts failed log-ins per email address. The count does not depend on the
    request's host name.
    """

    error_messages: ClassVar = DefaultAccountAdapter.error_messages | {
        "email_password_mismatch": "The email address or the password is wrong."
    }

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return False

    def send_mail(self, template_prefix: str, email: str, context: dict[str, Any]) -> None:
        values = mail.common_context() | context
        mail.queue(
            to=email,
            subject=render_to_string(f"{template_prefix}_subject.txt", values),
            text=render_to_string(f"{template_prefix}_message.txt", values),
        )

    def send_notification_mail(
        self,
        template_prefix: str,
        user: User,
        context: dict[str, Any] | None = None,
        email: str | None = None,
    ) -> None:
        super().send_notification_mail(template_prefix, user, context, email or user.email)

    def get_reset_password_from_key_url(self, key: str) -> str:
        path = reverse("account_reset_password_from_key", kwargs={"uidb36": "UID", "key": "KEY"})
        return settings.APP_URL + path.replace("UID-KEY", key)

    def reauthenticate(self, user: User, password: str) -> bool:
        found = self.authenticate(self.request, email=user.email, password=password)
        return found is not None and found.pk == user.pk

    def get_reauthentication_methods(self, user: User) -> list[dict[str, str]]:
        methods: list[dict[str, str]] = super().get_reauthentication_methods(user)
        for method in methods:
            if method["id"] == "mfa_reauthenticate:webauthn":
                method["description"] = "Use a passkey"
        return methods

    def _delete_login_attempts_cached_email(self, request: HttpRequest, **credentials: Any) -> None:
        key = self._get_login_attempts_cache_key(request, **credentials)
        clear_failures(request, action="login_failed", key=key, is_counted=False)

    def _get_login_attempts_cache_key(self, request: HttpRequest, **credentials: Any) -> str:
        return str(credentials.get("email", "")).lower()


class SecondFactorAdapter(DefaultMFAAdapter):  # type: ignore[misc]
    """Encrypts authenticator secrets. Stops staff from removing the second factor that they must have."""

    def encrypt(self, text: str) -> str:
        return encrypt(text, purpose=PURPOSE)

    def decrypt(self, encrypted_text: str) -> str:
        return decrypt(encrypted_text, purpose=PURPOSE)

    def can_delete_authenticator(self, authenticator: Authenticator) -> bool:
        required = authenticator.user.is_staff and settings.STAFF_SECOND_FACTOR
        return not required or has_second_factor(authenticator.user, besides=authenticator)

    def get_public_key_credential_rp_entity(self) -> dict[str, str]:
        entity: dict[str, str] = super().get_public_key_credential_rp_entity()
        return entity | {"name": settings.SERVICE_NAME.capitalize()}

    def generate_authenticator_name(self, user: User, type: Authenticator.Type) -> str:  # noqa: A002
        return f"Passkey {Authenticator.objects.filter(user=user, type=type).count() + 1}"


def _mark_code_used(factor: TOTP, code: str) -> bool:
    """Mark a code of an authenticator app as used for as long as the code is current. allauth marks it for one period,
    but with a tolerance a code is current for several. Returns False for a code that was used already.
    """
    seconds = app_settings.TOTP_PERIOD * (2 * app_settings.TOTP_TOLERANCE + 1)
    return bool(cache.add(factor._get_used_cache_key(code), "y", timeout=seconds))


TOTP._mark_code_used = _mark_code_used


@encryption.register
def rotate_second_factors() -> tuple[int, int]:
    """Re-encrypt authenticator secrets and the seeds of recovery codes (`manage.py rotate_encryption`). Returns the
    number of changed secrets, and the number of secrets that no key can decrypt.
    """
    changed = unreadable = 0
    for key in Authenticator.objects.values_list("pk", flat=True):
        with transaction.atomic():
            authenticator = Authenticator.objects.select_for_update().filter(pk=key).first()
            if authenticator is None:
                continue
            fresh = {}
            for name in ("secret", "seed"):
                if not (stored := authenticator.data.get(name)):
                    continue
                try:
                    encrypted = rotated(stored, purpose=PURPOSE)
                except InvalidToken:
                    unreadable += 1
                    encryption.log_unreadable(
                        table=Authenticator._meta.db_table, column=f"data.{name}", key=key
                    )
                    continue
                if encrypted:
                    fresh[name] = encrypted
            if fresh:
                authenticator.data |= fresh
                authenticator.save(update_fields=["data"])
                changed += len(fresh)
    return changed, unreadable


def has_second_factor(user: User, *, besides: Authenticator | None = None) -> bool:
    """Whether a user has an authenticator app or a passkey, other than `besides`."""
    factors = Authenticator.objects.filter(user=user).exclude(type=Authenticator.Type.RECOVERY_CODES)
    return bool(factors.exclude(pk=besides.pk if besides else None).exists())


def lacks_second_factor(user: User) -> bool:
    """Whether a staff member must set up a second factor before the staff pages open."""
    return bool(settings.STAFF_SECOND_FACTOR and user.is_staff and not has_second_factor(user))


def check_second_factor(user: User, code: str) -> bool:
    """Whether a text is a current code of the authenticator app or an unused recovery code. Marks the code as used."""
    if not code.isascii() or len(code) > 20:
        return False
    codes = (Authenticator.Type.TOTP, Authenticator.Type.RECOVERY_CODES)
    factors = Authenticator.objects.filter(user=user, type__in=codes)
    return any(authenticator.wrap().validate_code(code) for authenticator in factors)


FAILURE_WINDOW_SECONDS = 15 * 60


def identify(request: HttpRequest, *, email: str, password: str, otp: str) -> User:
    """The user with these credentials, for a console session. Raises Unauthorized, Forbidden, RateLimited.

    The log-in page and console sessions share one count of failures (ACCOUNT_RATE_LIMITS).
    """
    try:
        user = get_adapter().authenticate(request, email=email, password=password)
    except ValidationError:
        raise _too_many() from None
    if user is None or not user.is_active:
        raise Unauthorized(
            "Email address or password is wrong.", hint="A new password is set from the log-in page."
        )
    if has_second_factor(user):
        if not otp:
            raise Unauthorized(
                "This account has a second factor: send its code as `otp`.",
                hint="Send the same body with `otp`.",
            )
        key = f"mfa-auth-user-{user.pk}"
        if not ratelimit.consume(request, action="login_failed", key=key):
            raise _too_many()
        if not check_second_factor(user, otp):
            raise Unauthorized(
                "The code is wrong or was used already.", hint="Send the next code that the app shows."
            )
        clear_failures(request, action="login_failed", key=key)
    elif user.is_staff and settings.STAFF_SECOND_FACTOR:
        raise Forbidden("Staff need a second factor: log in to the console once and add one.")
    if not user.is_staff and user.tenant_id is None:
        raise Forbidden("This account belongs to no business.")
    return user  # type: ignore[no-any-return]


def _too_many() -> RateLimited:
    return RateLimited(
        "Too many failed attempts. Wait as long as Retry-After says, or reset the password.",
        headers={"Retry-After": str(FAILURE_WINDOW_SECONDS)},
    )
