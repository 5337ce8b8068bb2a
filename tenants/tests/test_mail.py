"""Mails: a mail is sent only after the transaction that caused it commits, is never lost, and is deleted when no longer
needed.
"""

import re
import smtplib
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.core import mail as django_mail
from django.core.mail import EmailMultiAlternatives
from django.core.mail.backends.base import BaseEmailBackend
from django.db import transaction

from gateway.clock import now
from tenants import mail
from tenants.models import OutboundMail, Tenant
from tests.fixtures import Api, assert_error
from tests.pages import ROOT


class BrokenServer(BaseEmailBackend):
    def send_messages(self, messages: Any) -> int:
        raise ConnectionRefusedError


@pytest.fixture
def smtp(settings: Any) -> None:
    settings.EMAIL_MODE = "smtp"


def send() -> None:
    mail.send(
        to="Asha@Example.com",
        template="confirm_sign_up",
        context={"company": "Asha & Sons", "link": "https://app.example/confirm/abc?x=1"},
    )


@pytest.mark.django_db
def test_a_logged_mail_is_shown_to_staff_with_its_links(staff_api: Api, settings: Any) -> None:
    settings.APP_URL = "https://app.example"
    send()
    body = staff_api.get("/v1/admin/mail/last?email=asha@example.COM").json()
    assert list(body) == ["to", "subject", "links", "sent_at"]
    assert body["to"] == "asha@example.com"
    assert body["links"] == ["https://app.example/confirm/abc?x=1"]
    row = OutboundMail.objects.get()
    assert "Asha & Sons" in row.text
    assert "Asha &amp; Sons" in row.html
    assert '<a href="https://app.example/confirm/abc?x=1"' in row.html


@pytest.mark.django_db
def test_the_last_mail_is_the_newest_to_that_address(staff_api: Api) -> None:
    for to, subject in (("a@b.example", "First"), ("a@b.example", "Second"), ("other@b.example", "Third")):
        mail.queue(to=to, subject=subject, text="x")
    assert staff_api.get("/v1/admin/mail/last?email=a@b.example").json()["subject"] == "Second"


@pytest.mark.django_db
def test_mail_last_answers_404_outside_of_log_mode_and_for_strangers(staff_api: Api, settings: Any) -> None:
    assert_error(staff_api.get("/v1/admin/mail/last?email=nobody@example.com"), 404, "not_found")
    assert_error(staff_api.get("/v1/admin/mail/last"), 400, "invalid_request")
    settings.EMAIL_MODE = "smtp"
    assert_error(staff_api.get("/v1/admin/mail/last?email=nobody@example.com"), 404, "not_found")


@pytest.mark.django_db(transaction=True)
def test_a_mail_whose_cause_is_undone_is_not_sent(smtp: None) -> None:
    with transaction.atomic():
        send()
        transaction.set_rollback(True)
    assert mail.deliver_waiting() == 0
    assert django_mail.outbox == []


@pytest.mark.django_db(transaction=True)
def test_smtp_sends_text_and_html_and_deletes_the_mail(smtp: None) -> None:
    send()
    assert mail.deliver_waiting() == 1
    message = django_mail.outbox[0]
    assert message.to == ["asha@example.com"]
    assert message.reply_to == [django_settings.SUPPORT_EMAIL]
    assert "https://app.example/confirm/abc?x=1" in message.body
    assert isinstance(message, EmailMultiAlternatives)
    assert message.alternatives[0][1] == "text/html"
    assert not OutboundMail.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_mail_server_that_is_away_costs_time_not_the_mail(
    smtp: None, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    send()
    with monkeypatch.context() as broken:
        broken.setattr(mail, "get_connection", lambda **_: BrokenServer())
        assert mail.deliver_waiting() == 0
    waiting = OutboundMail.objects.get()
    assert waiting.next_attempt_at is not None
    assert waiting.next_attempt_at > now()
    assert mail.deliver_waiting() == 0
    OutboundMail.objects.update(next_attempt_at=now())
    assert mail.deliver_waiting() == 1


@pytest.mark.django_db(transaction=True)
def test_a_mail_that_is_being_sent_or_was_given_up_is_not_sent_again(
    smtp: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = []

    class SentTwice(BaseEmailBackend):
        def send_messages(self, messages: Any) -> int:
            again.append(mail.deliver(row.id))
            return len(messages)

    send()
    row = OutboundMail.objects.get()
    monkeypatch.setattr(mail, "get_connection", lambda **_: SentTwice())
    assert mail.deliver(row.id)
    assert again == [False]
    send()
    OutboundMail.objects.update(next_attempt_at=None)
    assert not mail.deliver(OutboundMail.objects.get().id)


@pytest.mark.django_db(transaction=True)
def test_console_mode_prints_at_once(settings: Any, capsys: pytest.CaptureFixture[str]) -> None:
    settings.EMAIL_MODE = "console"
    with transaction.atomic():
        send()
    assert "https://app.example/confirm/abc?x=1" in capsys.readouterr().out
    assert not OutboundMail.objects.exists()


@pytest.mark.django_db
def test_old_mails_are_deleted(db: None) -> None:
    send()
    OutboundMail.objects.update(created_at=now() - timedelta(days=8))
    mail.deliver_waiting()
    assert not OutboundMail.objects.exists()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("earlier", "seconds"), [(0, 60), (1, 120), (2, 240), (3, 480), (6, 3840), (7, None), (8, None)]
)
def test_a_failed_mail_waits_twice_as_long_each_time_and_is_given_up_at_the_eighth(
    smtp: None, monkeypatch: pytest.MonkeyPatch, earlier: int, seconds: int | None
) -> None:
    send()
    OutboundMail.objects.update(attempts=earlier)
    monkeypatch.setattr(mail, "get_connection", lambda **_: BrokenServer())
    began = now()
    assert not mail.deliver(OutboundMail.objects.get().id)
    row = OutboundMail.objects.get()
    assert row.attempts == earlier + 1
    if seconds is None:
        assert row.next_attempt_at is None
    else:
        assert row.next_attempt_at is not None
        assert (
            timedelta(0) <= row.next_attempt_at - began - timedelta(seconds=seconds) < timedelta(seconds=30)
        )


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("answer", "earlier", "is_kept"),
    [
        (b"5.1.1 <asha@example.com>: user unknown", 0, False),
        (b"4.1.2 <asha@example.com>: domain not found", 0, True),
        (b"4.1.2 <asha@example.com>: domain not found", mail.ATTEMPTS - 1, False),
        (b"5.7.1 <asha@example.com>: relay access denied", mail.ATTEMPTS - 1, True),
        (b"user unknown", mail.ATTEMPTS - 1, True),
    ],
)
def test_a_mail_to_an_address_that_does_not_exist_is_deleted_and_raises_no_alert(
    smtp: None, monkeypatch: pytest.MonkeyPatch, answer: bytes, earlier: int, is_kept: bool
) -> None:
    class Refusing(BaseEmailBackend):
        def send_messages(self, messages: Any) -> int:
            raise smtplib.SMTPRecipientsRefused({"asha@example.com": (550, answer)})

    send()
    OutboundMail.objects.update(attempts=earlier)
    monkeypatch.setattr(mail, "get_connection", lambda **_: Refusing())
    assert mail.deliver_waiting() == 0
    assert OutboundMail.objects.exists() is is_kept
    assert mail.given_up() == (is_kept and earlier > 0)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("is_sent", "is_due", "is_kept"),
    [(True, False, False), (False, False, False), (False, True, True)],
    ids=["sent", "given up", "waiting"],
)
def test_after_a_week_only_a_mail_that_waits_is_kept(is_sent: bool, is_due: bool, is_kept: bool) -> None:
    send()
    later = now() + timedelta(minutes=1)
    OutboundMail.objects.update(
        sent_at=later if is_sent else None,
        next_attempt_at=later if is_due else None,
        created_at=now() - timedelta(days=7, minutes=1),
    )
    mail.deliver_waiting()
    assert OutboundMail.objects.exists() is is_kept


@pytest.mark.django_db(transaction=True)
def test_the_oldest_mail_goes_first_with_its_files_in_order(smtp: None) -> None:
    files = [mail.Attachment(f"{name}.pdf", "application/pdf", name.encode()) for name in ("b", "a")]
    for to in ("first@a.example", "second@a.example"):
        mail.queue(to=to, subject="Invoice", text="x", attachments=files)
    assert mail.deliver_waiting() == 2
    assert [message.to for message in django_mail.outbox] == [["first@a.example"], ["second@a.example"]]
    assert django_mail.outbox[0].attachments == [
        (file.name, file.content, file.content_type) for file in files
    ]


def test_a_links_punctuation_is_not_part_of_it() -> None:
    text = "See https://a.example/x?y=1, <http://b.example/>. Or https://c.example/a.b."
    assert mail.links_in(text) == ["https://a.example/x?y=1", "http://b.example/", "https://c.example/a.b"]


@pytest.mark.django_db
def test_a_tenant_without_an_address_gets_no_mail(tenant: Tenant) -> None:
    mail.send_to_tenant(tenant=tenant, template="approved")
    assert not OutboundMail.objects.exists()


@pytest.mark.django_db
def test_a_name_never_writes_a_line_or_a_button_of_its_own() -> None:
    evil = "Asha\n\nYour account is locked. Unlock it:\nhttps://evil.example/unlock\n\n" + "x" * 200
    tenant = Tenant(name=evil, contact_email="owner@asha.example", status="active")
    for template in ("approved", "rejected", "suspended", "reinstated"):
        mail.send_to_tenant(tenant=tenant, template=template)
    mail.send(
        to="owner@asha.example",
        template="confirm_sign_up",
        context={"company": evil, "link": f"{django_settings.APP_URL}/sign-up/confirm/x"},
    )
    for row in OutboundMail.objects.order_by("id"):
        assert 'href="https://evil' not in row.html
        assert "\nhttps://evil" not in row.text
        assert "x" * 50 not in row.text
    assert f'href="{django_settings.APP_URL}/sign-up/confirm/x"' in row.html


@pytest.mark.parametrize(
    ("link", "is_button"),
    [
        ("https://evil.example/unlock", False),
        ("https://app.example.evil.example/console", False),
        ("https://app.example@evil.example/console", False),
        ("https://app.example", False),
        ("https://app.example/console", True),
    ],
)
@pytest.mark.django_db
def test_only_links_into_the_console_become_buttons(settings: Any, link: str, is_button: bool) -> None:
    """Staff can write several lines. A link in the reason of a rejection stays text, wherever it leads."""
    settings.APP_URL = "https://app.example"
    mail.queue(
        to="a@b.example", subject="Your application", text=f"The reason:\n\nPlease look at:\n{link}\n\nBye"
    )
    row = OutboundMail.objects.get()
    assert link in row.text
    assert (f'href="{link}"' in row.html) is is_button
    assert 'href="https://evil' not in row.html
    assert link in row.html


@pytest.mark.django_db(transaction=True)
def test_one_mail_that_cannot_be_built_stops_no_other(smtp: None, monkeypatch: pytest.MonkeyPatch) -> None:
    send()
    OutboundMail.objects.update(subject="two\nlines")
    send()
    assert mail.deliver_waiting() == 1
    left = OutboundMail.objects.get()
    assert left.subject == "two\nlines"
    assert left.next_attempt_at is not None, "it is tried again"

    OutboundMail.objects.update(attempts=mail.ATTEMPTS - 1, next_attempt_at=now())
    assert mail.deliver_waiting() == 0
    assert OutboundMail.objects.get().next_attempt_at is None, "it is given up like any other"


@pytest.mark.django_db(transaction=True)
def test_a_mail_server_that_hangs_holds_no_worker_for_long(
    smtp: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        send()
    monkeypatch.setattr(mail, "RUN_SECONDS", 0.0)
    assert mail.deliver_waiting() == 1
    assert OutboundMail.objects.count() == 2


def test_every_mails_button_is_a_few_words_and_its_first_sentence_begins_large() -> None:
    files = sorted((django_settings.BASE_DIR / "templates").glob("mail/*.txt"))
    assert files
    for file in files:
        text = re.sub(r"\{%.*?%\}", "", file.read_text())
        assert re.search(r"Hello,\n\n\s*[A-Z{]", text), file.name
        for button in re.findall(r"^(.*):\n\{\{ (?:app_url|pay_url|link) ", text, re.MULTILINE):
            assert 0 < len(button) <= 30, f"{file.name}: {button}"


def test_a_mail_has_its_subject_as_heading_and_times_of_india(db: None) -> None:
    mail.queue(to="asha@traders.example", subject="Confirm <it>", text="Hello,\n\nPlease confirm.")
    assert ">Confirm &lt;it&gt;</h1>" in OutboundMail.objects.get().html
    for template in (*ROOT.glob("templates/mail/*.txt"), *ROOT.glob("templates/*/email/*.txt")):
        # The filter `ist` writes a moment with its zone.
        assert not re.search(r"UTC|IST|H:i", template.read_text()), template
