"""django-allauth as the service changes it: log-in, password reset and second factor of people.

Sign-up is not allauth's (`signup/registration.py`); the console session API shares the failure limits with the
log-in page through `AccountAdapter.authenticate`.
"""

from typing import Any, ClassVar

from allauth.account.adapter import DefaultAccountAdapter
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.mfa.models import Authenticator
from django.conf import settings
from django.db import transaction
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import reverse

from gateway.encryption import rotation
from gateway.encryption.cipher import decrypt, encrypt, rotated
from tenants import mail
from tenants.models import User

PURPOSE = "second_factor"


class AccountAdapter(DefaultAccountAdapter):  # type: ignore[misc]
    """Mails leave through `mail.py`; failures are counted by address alone, whatever host name was asked."""

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

    def _get_login_attempts_cache_key(self, request: HttpRequest, **credentials: Any) -> str:
        return str(credentials.get("email", "")).lower()


class SecondFactorAdapter(DefaultMFAAdapter):  # type: ignore[misc]
    """Authenticator secrets are encrypted; staff cannot switch off what their role demands."""

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


@rotation.register
def rotate_second_factors() -> int:
    """Encrypt authenticator secrets and the seeds of recovery codes anew (`manage.py rotate_encryption`)."""
    changed = 0
    for key in Authenticator.objects.values_list("pk", flat=True):
        with transaction.atomic():
            authenticator = Authenticator.objects.select_for_update().get(pk=key)
            fresh = {
                name: anew
                for name in ("secret", "seed")
                if (stored := authenticator.data.get(name)) and (anew := rotated(stored, purpose=PURPOSE))
            }
            if fresh:
                authenticator.data |= fresh
                authenticator.save(update_fields=["data"])
                changed += len(fresh)
    return changed


def has_second_factor(user: User, *, besides: Authenticator | None = None) -> bool:
    """Whether a person has an authenticator app or a passkey, `besides` one of them."""
    factors = Authenticator.objects.filter(user=user).exclude(type=Authenticator.Type.RECOVERY_CODES)
    return bool(factors.exclude(pk=besides.pk if besides else None).exists())


def check_second_factor(user: User, code: str) -> bool:
    """Whether a code of the authenticator app, or an unused recovery code, is right. A code works once."""
    if not code.isascii() or len(code) > 20:
        return False
    codes = (Authenticator.Type.TOTP, Authenticator.Type.RECOVERY_CODES)
    factors = Authenticator.objects.filter(user=user, type__in=codes)
    return any(authenticator.wrap().validate_code(code) for authenticator in factors)
