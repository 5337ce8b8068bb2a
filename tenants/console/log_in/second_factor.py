"""The second step of the log-in: what its page asks for, and what a recovery code leaves behind."""

from allauth.core import context
from allauth.mfa.base.forms import AuthenticateForm
from allauth.mfa.models import Authenticator
from django.contrib import messages


class CodeForm(AuthenticateForm):  # type: ignore[misc]
    """A code after the password, of the authenticator app or a recovery code. The page asks for what there is."""

    @property
    def has_app(self) -> bool:
        """Whether an authenticator app shows codes, and not the recovery codes alone."""
        return bool(Authenticator.objects.filter(user=self.user, type=Authenticator.Type.TOTP).exists())

    def save(self) -> None:
        super().save()
        if self.authenticator.type == Authenticator.Type.RECOVERY_CODES:
            self.authenticator.refresh_from_db()
            left = len(self.authenticator.wrap().get_unused_codes())
            codes = (
                "no recovery code is"
                if left == 0
                else f"{left} recovery code{'s are' if left > 1 else ' is'}"
            )
            messages.warning(
                context.request,
                f"You used a recovery code: {codes} left. Make new ones, or another second factor, under Security.",
            )
