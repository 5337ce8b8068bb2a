"""Creating and finding what the fake upstream knows. The only writer of the records' indexes.

Everything that must survive a restart calls `changed()`, which lets the snapshot be written a moment later.
"""

import base64
import hashlib
import hmac
import os
import random
import secrets
import time
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from simulator.config import Config
from simulator.records import (
    MANAGE_EVENTS,
    MANAGEMENT,
    MESSAGING,
    Account,
    Code,
    Media,
    Message,
    Number,
    Template,
    Token,
    Upload,
)

CODE_SECONDS = 30
MEDIA_BYTES = 512 * 1024 * 1024
UPLOADS_KEPT = 200
TOKEN_VARIANTS = (
    "default",
    "no_target_ids",
    "manage_events",
    "no_messaging",
    "other_app",
    "60_days",
    "expiring",
    "expired",
    "invalid",
)
_COUNTRIES = {"1": "US", "44": "GB", "49": "DE", "52": "MX", "55": "BR", "91": "IN", "971": "AE", "65": "SG"}
_NAMES = (
    "Asha Rao",
    "Ravi Kumar",
    "Meera Iyer",
    "Arjun Singh",
    "Divya Nair",
    "Kabir Khan",
    "Leela Das",
    "Nikhil Shah",
)


def digits_of(number: str) -> str:
    """The digits of a phone number in any notation."""
    return "".join(character for character in number if character.isdigit())


def display_form(digits: str) -> str:
    """The way the upstream prints a number: `+91 98000 00001`."""
    if digits.startswith("91") and len(digits) == 12:
        return f"+91 {digits[2:7]} {digits[7:]}"
    if digits.startswith("1") and len(digits) == 11:
        return f"+1 {digits[1:4]}-{digits[4:7]}-{digits[7:]}"
    return f"+{digits}"


@lru_cache(maxsize=100_000)
def business_scoped_id(business_id: str, digits: str) -> str:
    """The customer's user id within a business portfolio: always the same for the same pair."""
    country = next((_COUNTRIES[digits[:n]] for n in (3, 2, 1) if digits[:n] in _COUNTRIES), "IN")
    number = int.from_bytes(hashlib.sha256(f"{business_id}:{digits}".encode()).digest()[:10], "big")
    return f"{country}.{number % 10**20:020d}"


@lru_cache(maxsize=100_000)
def customer_name(customer: str) -> str:
    """A profile name for a customer that gave none."""
    return _NAMES[sum(customer.encode()) % len(_NAMES)]


def message_id(party: str, *, inbound: bool) -> str:
    """A `wamid.` of the upstream's form (upstream fact 1.1): readable parts, unique tail."""
    tail = os.urandom(10 if inbound else 9).hex().upper().encode()
    who = party.encode()[:120]
    raw = b"\x1c\x18%c%b\x15\x02\x00%c\x18%c%b\x00" % (
        len(who),
        who,
        0x12 if inbound else 0x11,
        len(tail),
        tail,
    )
    return "wamid." + base64.b64encode(raw).decode()


def new_id(prefix: str) -> str:
    """A numeric id of 15 digits that begins with `prefix`, so that a reader sees what it names."""
    return prefix + "".join(random.choices("0123456789", k=15 - len(prefix)))


class State:
    """All records with their indexes."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.on_change: Callable[[], None] = lambda: None
        self._proofs: dict[str, str] = {}
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.accounts: dict[str, Account] = {}
        self.numbers: dict[str, Number] = {}
        self.tokens: dict[str, Token] = {}
        self.codes: dict[str, Code] = {}
        self.media: dict[str, Media] = {}
        self.media_bytes = 0
        self.templates: dict[str, Template] = {}
        self.template_index: dict[tuple[str, str, str], Template] = {}
        self.clear_messages()
        self.customers: dict[str, dict[str, Any]] = {}
        self.uploads: dict[str, Upload] = {}
        self.handles: dict[str, Upload] = {}
        self.template_creations: dict[str, list[float]] = {}
        self.deleted_templates: dict[tuple[str, str, str], float] = {}
        # The app's own subscription: None until POST /{app}/subscriptions, then {callback_url, verify_token,
        # fields}.
        self.app_subscription: dict[str, Any] | None = None

    def clear_messages(self) -> None:
        """Forget the conversations."""
        self.messages: dict[str, Message] = {}
        self.conversations: dict[tuple[str, str], deque[Message]] = {}
        self.last_inbound: dict[tuple[str, str], float] = {}

    def changed(self) -> None:
        """Something that a restart must not lose has changed."""
        self.on_change()

    def create_account(
        self, *, name: str, waba_id: str | None = None, business_id: str | None = None
    ) -> Account:
        """A new WABA in a business portfolio of its own unless one is named."""
        account = Account(waba_id or new_id("1002"), name, business_id or new_id("3004"))
        self.accounts[account.waba_id] = account
        self.changed()
        return account

    def create_number(
        self,
        account: Account,
        *,
        digits: str | None = None,
        phone_number_id: str | None = None,
        verified_name: str | None = None,
        registered: bool = True,
        **values: Any,
    ) -> Number:
        """A number of the account; an unregistered one still has to be verified and registered."""
        digits = digits or self._free_digits()
        number = Number(
            id=phone_number_id or new_id("2003"),
            waba_id=account.waba_id,
            digits=digits,
            display_phone_number=display_form(digits),
            verified_name=verified_name or account.name,
            **values,
        )
        if registered:
            number.last_onboarded_time = graph_time()
        else:
            number.platform_type = "NOT_APPLICABLE"
            number.status = "PENDING"
            number.throughput = "NOT_APPLICABLE"
        self.numbers[number.id] = number
        account.numbers.append(number.id)
        self.changed()
        return number

    def _free_digits(self) -> str:
        taken = {number.digits for number in self.numbers.values()}
        return next(str(n) for n in range(919800000001, 919900000000) if str(n) not in taken)

    def number_by_digits(self, digits: str, *, waba_id: str | None = None) -> Number | None:
        """The number with these digits, in one account or in any."""
        for number in self.numbers.values():
            if number.digits == digits and (waba_id is None or number.waba_id == waba_id):
                return number
        return None

    def issue_token(
        self, waba_ids: list[str], *, variant: str = "default", value: str | None = None
    ) -> Token:
        """A customer's business token over the accounts. Raises `ValueError` for an unknown variant."""
        if variant not in TOKEN_VARIANTS:
            raise ValueError(f"unknown variant {variant!r}")
        now = int(time.time())
        token = Token(
            value=value or "EAAsim" + secrets.token_hex(40),
            waba_ids=None if variant == "no_target_ids" else list(waba_ids),
            app_id="111222333444555" if variant == "other_app" else self.config.app_id,
            issued_at=now,
        )
        if variant == "manage_events":
            token.scopes = [MANAGE_EVENTS, MESSAGING, "public_profile"]
        elif variant == "no_messaging":
            token.scopes = [MANAGEMENT, "public_profile"]
        elif variant in {"60_days", "expiring"}:
            token.expires_at = now + (60 if variant == "60_days" else 6) * 86400
            token.data_access_expires_at = now + 90 * 86400
        elif variant == "expired":
            token.issued_at = now - 61 * 86400
            token.expires_at = now - 86400
        elif variant == "invalid":
            token.invalidated = True
        self.tokens[token.value] = token
        self.changed()
        return token

    def issue_code(self, waba_id: str, *, variant: str = "default", seconds: float = CODE_SECONDS) -> Code:
        """A single-use code that the token exchange turns into a token of `variant`."""
        if variant not in TOKEN_VARIANTS:
            raise ValueError(f"unknown variant {variant!r}")
        now = time.time()
        for stale in [code.value for code in self.codes.values() if code.expires_at < now - 3600]:
            del self.codes[stale]
        code = Code("AQsim" + secrets.token_urlsafe(60), waba_id, variant, now + seconds)
        self.codes[code.value] = code
        return code

    def proof(self, token: str) -> str:
        """The `appsecret_proof` of a token (upstream fact 1.8)."""
        found = self._proofs.get(token)
        if found is None:
            found = hmac.new(self.config.app_secret.encode(), token.encode(), hashlib.sha256).hexdigest()
            self._proofs[token] = found
        return found

    def store_media(
        self, number: Number, *, data: bytes, mime_type: str, filename: str | None, days: int
    ) -> Media:
        """Keep a file for `days`; the oldest files leave when all together pass 512 MiB."""
        media = Media(
            id=new_id("51"),
            waba_id=number.waba_id,
            phone_number_id=number.id,
            mime_type=mime_type,
            filename=filename,
            sha256=hashlib.sha256(data).digest(),
            data=data,
            expires_at=time.time() + days * 86400,
        )
        self.media[media.id] = media
        self.media_bytes += len(data)
        while self.media_bytes > MEDIA_BYTES and len(self.media) > 1:
            self.drop_media(next(iter(self.media)))
        return media

    def drop_media(self, media_id: str) -> None:
        """Forget a file."""
        self.media_bytes -= len(self.media.pop(media_id).data)

    def add_upload(self, upload: Upload) -> None:
        """Keep an upload; the oldest one leaves when there are many."""
        self.uploads[upload.key] = upload
        if len(self.uploads) > UPLOADS_KEPT:
            oldest = self.uploads.pop(next(iter(self.uploads)))
            self.handles.pop(oldest.handle or "", None)

    def add_template(self, template: Template) -> None:
        """Store a template under its id and its name and language."""
        self.templates[template.id] = template
        self.template_index[template.waba_id, template.name, template.language] = template
        self.changed()

    def drop_template(self, template: Template) -> None:
        """Forget a template."""
        self.templates.pop(template.id, None)
        self.template_index.pop((template.waba_id, template.name, template.language), None)
        self.changed()

    def add_message(self, message: Message, *, limit: int) -> None:
        """Remember a message; the oldest one leaves when more than `limit` are kept."""
        self.messages[message.id] = message
        key = (message.phone_number_id, message.customer)
        conversation = self.conversations.get(key)
        if conversation is None:
            conversation = self.conversations[key] = deque()
        conversation.append(message)
        if len(self.messages) > limit:
            oldest = self.messages.pop(next(iter(self.messages)))
            key = (oldest.phone_number_id, oldest.customer)
            conversation = self.conversations[key]
            conversation.popleft()
            if not conversation:
                del self.conversations[key]


def graph_time(seconds: float | None = None) -> str:
    """A time as the Graph API writes it: `2026-10-01T08:00:00+0000`."""
    return time.strftime(
        "%Y-%m-%dT%H:%M:%S+0000", time.gmtime(seconds if seconds is not None else time.time())
    )
