"""Mails to tenants and staff. A mail is stored in the transaction that causes it, and sent after the commit.

Every flow that sends a mail calls `send`. A mail stays a row until it is sent, so no mail is lost when the process or
the mail server fails. With EMAIL_MODE `smtp`, a task sends the mail and deletes the row. With `console`, the mail is
printed. With `log`, the row stays for `/v1/admin/mail/last`.
"""

import re
import smtplib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import structlog
from django.conf import settings
from django.core.mail import EmailMultiAlternatives, get_connection
from django.db import transaction
from django.db.models import F, Min, Q
from django.template.loader import render_to_string

from gateway.clock import now
from gateway.database.partitions import delete_free
from gateway.database.transactions import concerns_all, leave_database
from gateway.monitoring import metrics
from gateway.task_queue import enqueue
from tenants.models import MailAttachment, OutboundMail, Tenant

log = structlog.get_logger(__name__)

ATTEMPTS = 8
LEASE = timedelta(minutes=2)
"""How long a process owns a mail that it claimed. After a crash of the process, the mail is sent after this time."""
RUN_SECONDS = 20.0
"""How long one run sends waiting mails. A mail server that does not respond can delay each mail by 15 seconds."""
KEPT_DAYS = 7
_LINK = re.compile(r"https?://[^\s<>\"]+")


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file attached to a mail."""

    name: str
    content_type: str
    content: bytes = field(repr=False)


def send(
    *,
    to: str,
    template: str,
    context: Mapping[str, Any] | None = None,
    attachments: Sequence[Attachment] = (),
) -> None:
    """Queue the mail `templates/mail/<template>.txt`. The first line of the template is the subject."""
    subject, _, text = render_to_string(
        f"mail/{template}.txt", {**common_context(), **(context or {})}
    ).partition("\n")
    queue(to=to, subject=subject, text=text, attachments=attachments)


def common_context() -> dict[str, Any]:
    """Context of every mail: the service's name, the console's address and the support address."""
    return {
        "service": settings.SERVICE_NAME.capitalize(),
        "app_url": settings.APP_URL,
        "support_email": settings.SUPPORT_EMAIL,
    }


def send_to_tenant(*, tenant: Tenant, template: str, context: Mapping[str, Any] | None = None) -> None:
    """Queue a mail to the contact address of a tenant. Does nothing for a tenant without a contact address, such as a
    tenant of a platform app.
    """
    if tenant.contact_email:
        send(to=tenant.contact_email, template=template, context={"tenant": tenant, **(context or {})})


def queue(*, to: str, subject: str, text: str, attachments: Sequence[Attachment] = ()) -> None:
    """Store a mail. It is sent after the commit of the current transaction. The HTML part has the same text."""
    logged = settings.EMAIL_MODE == "log"
    subject, text = " ".join(subject.split()), text.strip()
    mail = OutboundMail.objects.create(
        to=to.lower(),
        subject=subject,
        text=text,
        html=render_to_string(
            "mail/frame.html", common_context() | {"subject": subject, "paragraphs": _paragraphs(text)}
        ),
        sent_at=now() if logged else None,
        next_attempt_at=None if logged else now(),
    )
    MailAttachment.objects.bulk_create(
        MailAttachment(mail=mail, name=file.name, content_type=file.content_type, content=file.content)
        for file in attachments
    )
    if not logged:
        transaction.on_commit(lambda: _leave(mail.pk))


def links_in(text: str) -> list[str]:
    """The links in the text of a mail, in order."""
    return [link.rstrip(".,") for link in _LINK.findall(text)]


def _paragraphs(text: str) -> list[dict[str, str]]:
    """Split a text into paragraphs. When the last line of a paragraph is a link into the console, the link becomes a
    button below the paragraph.

    Only templates contain such links. A text from users is a single line, so its links never become buttons.
    """
    found = []
    for paragraph in re.split(r"\n\s*\n", text):
        words, _, last = paragraph.strip().rpartition("\n")
        if words and _LINK.fullmatch(last.strip()) and last.strip().startswith(f"{settings.APP_URL}/"):
            found.append({"text": words.strip().removesuffix(":"), "link": last.strip()})
        else:
            found.append({"text": paragraph.strip(), "link": ""})
    return found


def _leave(mail_id: int) -> None:
    if settings.EMAIL_MODE == "console":
        deliver(mail_id)
        return
    enqueue("tenants.tasks.send_mail", mail_id=mail_id)


def deliver(mail_id: int) -> bool:
    """Send one mail and delete its row. Returns whether the mail was sent. A failed mail is retried, up to `ATTEMPTS`
    attempts.
    """
    moment = now()
    claimed = OutboundMail.objects.filter(pk=mail_id, next_attempt_at__lte=moment).update(
        next_attempt_at=moment + LEASE, attempts=F("attempts") + 1
    )
    if not claimed:
        return False
    mail = OutboundMail.objects.get(pk=mail_id)
    message = EmailMultiAlternatives(
        mail.subject, mail.text, settings.DEFAULT_FROM_EMAIL, [mail.to], reply_to=[settings.SUPPORT_EMAIL]
    )
    message.attach_alternative(mail.html, "text/html")
    for file in mail.attachments.order_by("id"):
        message.attach(file.name, bytes(file.content), file.content_type)
    backend = "console" if settings.EMAIL_MODE == "console" else None
    leave_database()
    try:
        message.connection = get_connection(
            backend=f"django.core.mail.backends.{backend}.EmailBackend" if backend else None
        )
        message.send()
    except OSError as error:
        # Only the type of the error is logged, because the text of smtplib's errors may contain the address.
        over = mail.attempts >= ATTEMPTS
        status = _status_of_address(error)
        if status.startswith(b"5.1.") or (over and status.startswith(b"4.1.")):
            log.info("mail_to_unknown_address", mail_id=mail_id)
            mail.delete()
            return False
        log.warning("mail_failed", mail_id=mail_id, error=type(error).__name__, given_up=over)
        mail.next_attempt_at = None if over else now() + timedelta(seconds=30 * 2**mail.attempts)
        mail.save(update_fields=["next_attempt_at"])
        return False
    mail.delete()
    return True


def _status_of_address(error: OSError) -> bytes:
    """The enhanced status code with which the mail server rejected the mail's address. x.1.x concerns the address alone
    (RFC 3463): it does not exist, like a sign-up's with a typing error.
    """
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        for _, text in error.recipients.values():
            return bytes(text)
    return b""


def deliver_waiting() -> int:
    """Retry unsent mail. Delete mail past retention. Returns the number of mails sent."""
    delete_free(
        OutboundMail.objects.filter(
            Q(sent_at__isnull=False) | Q(next_attempt_at__isnull=True),
            created_at__lt=now() - timedelta(days=KEPT_DAYS),
        )
    )
    waiting = (
        OutboundMail.objects.filter(next_attempt_at__lte=now()).order_by("id").values_list("id", flat=True)
    )
    ends_at = time.monotonic() + RUN_SECONDS
    sent = 0
    for mail_id in list(waiting[:200]):
        sent += _deliver_alone(mail_id)
        if time.monotonic() > ends_at:
            break
    return sent


def _deliver_alone(mail_id: int) -> bool:
    """Call `deliver`. A mail that cannot be built does not stop the other mails. That mail is attempted again when its
    lease ends.
    """
    try:
        return deliver(mail_id)
    except Exception as error:
        if concerns_all(error):
            raise
        log.error("mail_unsendable", mail_id=mail_id, error=type(error).__name__)
        OutboundMail.objects.filter(pk=mail_id, attempts__gte=ATTEMPTS).update(next_attempt_at=None)
        return False


# --- Metrics of outbound mail: the age of the oldest due mail, and the number of mails that were given up.

GIVEN_UP_DAYS = 7


def oldest_due_age() -> float:
    """Seconds since the oldest due mail became due. 0 when no mail is due."""
    oldest = OutboundMail.objects.filter(next_attempt_at__lte=now()).aggregate(first=Min("next_attempt_at"))
    return (now() - oldest["first"]).total_seconds() if oldest["first"] else 0.0


def given_up() -> int:
    """The number of mails of the last week that were given up."""
    recent = OutboundMail.objects.filter(created_at__gt=now() - timedelta(days=GIVEN_UP_DAYS))
    return recent.filter(sent_at__isnull=True, next_attempt_at__isnull=True).count()


metrics.gauge(
    "gateway_mail_oldest_due_age_seconds", "Age of the oldest mail that is due and not sent.", oldest_due_age
)
metrics.gauge("gateway_mail_given_up", "Mails of the last 7 days that were given up.", given_up)
