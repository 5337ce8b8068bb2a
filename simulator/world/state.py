"""State of the simulator: creates and finds records. Only this module changes the indexes of the records.

Code that changes saved data calls `changed()`, and the snapshot is written shortly after.
"""

import hashlib
import hmac
import secrets
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import orjson

from simulator.config import Config
from simulator.world.conversation_log import ConversationLog
from simulator.world.identifiers import display_form, graph_time, new_id
from simulator.world.media_store import MediaStore
from simulator.world.records import (
    MANAGE_EVENTS,
    MANAGEMENT,
    MESSAGING,
    Account,
    Code,
    Flow,
    Number,
    Template,
    Token,
    Upload,
)

CODE_SECONDS = 30
PROOF_SECONDS = 300
UPLOADS_KEPT = 200
"""The maximum number of an account's uploads."""
MOST_UPLOAD_BYTES = 128 * 1024 * 1024
MOST_UPLOAD_BYTES_OF_ACCOUNT = 128 * 1024 * 1024
MOST_BYTES_OF_ACCOUNT = 16 * 1024 * 1024
"""The maximum size in bytes of an account's objects: templates, flows, groups and similar."""
MOST_BYTES_OF_OBJECTS = 32 * 1024 * 1024
LEAST_BYTES_OF_ACCOUNT = 1024 * 1024
"""The limit of each account while the objects of all accounts together exceed `MOST_BYTES_OF_OBJECTS`."""
MOST_TOKENS_OF_ACCOUNT = 50
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


class State:
    """All records with their indexes."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.on_change: Callable[[], None] = lambda: None
        self._proofs: dict[str, str] = {}
        self.clear()

    def clear(self) -> None:
        """Delete everything."""
        self.accounts: dict[str, Account] = {}
        self.numbers: dict[str, Number] = {}
        self.tokens: dict[str, Token] = {}
        self.codes: dict[str, Code] = {}
        self.media = MediaStore()
        self.templates: dict[str, Template] = {}
        self.template_index: dict[tuple[str, str, str], Template] = {}
        self.clear_messages()
        # Account → customer → the account's data about the customer.
        self.customers: dict[str, dict[str, dict[str, Any]]] = {}
        # Business-scoped user id → the digits of its customer.
        self.user_ids: dict[str, str] = {}
        self.uploads: dict[str, Upload] = {}
        self.flows: dict[str, Flow] = {}
        # Objects of declared edges (`graph/schema.py`): "{node}/{edge}" → key → object.
        self.objects: dict[str, dict[str, dict[str, Any]]] = {}
        # Account → the size of its objects when it was last measured.
        self._object_bytes: dict[str, int] = {}
        self.handles: dict[str, Upload] = {}
        self.template_creations: dict[str, list[float]] = {}
        self.deleted_templates: dict[tuple[str, str, str], float] = {}
        # The app's own subscription. None until POST /{app}/subscriptions, then {callback_url, verify_token, fields}.
        self.app_subscription: dict[str, Any] | None = None

    def clear_messages(self) -> None:
        """Delete the conversations."""
        self.messages = ConversationLog()

    def changed(self) -> None:
        """Signal a change of data that must survive a restart."""
        self.on_change()

    def create_account(
        self, *, name: str, waba_id: str | None = None, business_id: str | None = None
    ) -> Account:
        """Create an account (WABA), in the business portfolio `business_id` or, without it, in a new one."""
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
        """Add a number to an account. An unregistered number cannot send before it is verified and registered."""
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
        """The number with these digits, in the account `waba_id` or in any account."""
        for number in self.numbers.values():
            if number.digits == digits and (waba_id is None or number.waba_id == waba_id):
                return number
        return None

    def issue_token(
        self, waba_ids: list[str], *, variant: str = "default", value: str | None = None
    ) -> Token:
        """Create a customer's business token for the accounts. Raises `ValueError` for an unknown variant."""
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
        if token.waba_ids and len(token.waba_ids) == 1:
            own = [each.value for each in self.tokens.values() if each.waba_ids == token.waba_ids]
            for oldest in own[:-MOST_TOKENS_OF_ACCOUNT]:
                del self.tokens[oldest]
        self.changed()
        return token

    def exceeded_limit(self, waba_id: str) -> int | None:
        """The limit in bytes that the objects of an account exceed. None if they do not exceed it."""
        for unmeasured in self.accounts.keys() - self._object_bytes.keys():
            self.measure(unmeasured)
        is_crowded = sum(self._object_bytes.values()) > MOST_BYTES_OF_OBJECTS
        limit = LEAST_BYTES_OF_ACCOUNT if is_crowded else MOST_BYTES_OF_ACCOUNT
        return limit if self._object_bytes.get(waba_id, 0) > limit else None

    def measure(self, waba_id: str) -> None:
        """Measure the objects of an account. Call it after each change of them."""
        account = self.accounts.get(waba_id)
        if account is None:
            return
        of_account = tuple(f"{node}/" for node in (waba_id, *account.numbers))
        made: list[Any] = [rows for path, rows in self.objects.items() if path.startswith(of_account)]
        made += [template.components for template in self.templates.values() if template.waba_id == waba_id]
        made += [[name, language] for owner, name, language in self.deleted_templates if owner == waba_id]
        flows = [flow for flow in self.flows.values() if flow.waba_id == waba_id]
        made += [[flow.name, flow.categories, flow.endpoint_uri] for flow in flows]
        size = sum(len(orjson.dumps(each)) for each in made) + sum(len(flow.json) for flow in flows)
        self._object_bytes[waba_id] = size

    def issue_code(self, waba_id: str, *, variant: str = "default", seconds: float = CODE_SECONDS) -> Code:
        """Create a single-use code. It can be exchanged for a token of `variant`."""
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

    def proves(self, token: str, proof: str, stamp: str | None) -> bool:
        """Whether an `appsecret_proof` is valid. A proof with `appsecret_time` (`stamp`) also covers this time and
        expires after five minutes.
        """
        if stamp is None:
            return hmac.compare_digest(proof.encode(), self.proof(token).encode())
        message = f"{token}|{stamp}".encode()
        expected = hmac.new(self.config.app_secret.encode(), message, hashlib.sha256).hexdigest()
        fresh = stamp.isdigit() and abs(time.time() - int(stamp)) <= PROOF_SECONDS
        return fresh and hmac.compare_digest(proof.encode(), expected.encode())

    def add_upload(self, upload: Upload) -> None:
        """Store an upload. When an account's uploads exceed the limits, the account's oldest uploads are dropped. When
        all uploads together exceed the limit, the oldest of the account with the most bytes are dropped.
        """
        older: defaultdict[str, list[Upload]] = defaultdict(list)
        sizes = Counter({upload.owner: upload.length})
        for each in self.uploads.values():
            older[each.owner].append(each)
            sizes[each.owner] += each.length
        self.uploads[upload.key] = upload

        def drop_oldest(owner: str) -> None:
            oldest = older[owner].pop(0)
            sizes[owner] -= oldest.length
            del self.uploads[oldest.key]
            self.handles.pop(oldest.handle or "", None)

        own = older[upload.owner]
        while own and (len(own) >= UPLOADS_KEPT or sizes[upload.owner] > MOST_UPLOAD_BYTES_OF_ACCOUNT):
            drop_oldest(upload.owner)
        while sizes.total() > MOST_UPLOAD_BYTES and (owners := [owner for owner in older if older[owner]]):
            drop_oldest(max(owners, key=sizes.__getitem__))

    def add_template(self, template: Template) -> None:
        """Store a template by its id, and by its name and language."""
        self.templates[template.id] = template
        self.template_index[template.waba_id, template.name, template.language] = template
        self.changed()

    def drop_template(self, template: Template) -> None:
        """Delete a template."""
        self.templates.pop(template.id, None)
        self.template_index.pop((template.waba_id, template.name, template.language), None)
        self.changed()
