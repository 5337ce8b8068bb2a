"""Template management (specification 4): create, read, edit, delete, sync, library and samples. Each operation calls
Meta, updates the mirror, and returns Meta's answer.

A template belongs to the tenant if the mirror has it; otherwise the answer is 404. No id is ever tried at Meta with
another account's token. A rejection by Meta raises `Refused` with the answer to pass through. A command without an
answer may have worked, so the account's templates are read again soon.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit
from uuid import UUID

import orjson
import structlog
from django.conf import settings
from django.db.models import QuerySet

from gateway.api.errors import InvalidRequest, MetaUnreachable, NotFound
from gateway.clock import now
from gateway.json_spans import members_at, root_members
from gateway.upstream.blocking_client import FileBody
from gateway.upstream.calls import GraphAnswer, UpstreamUnreachable
from gateway.upstream.templates import GONE, TEMPLATE_FIELDS, TemplateGraph
from messaging.media.uploads import Upload
from messaging.message_templates import mirror
from messaging.models import MessageTemplate
from phone_numbers.models import BusinessAccount
from phone_numbers.senders_and_owners import required_sender
from phone_numbers.tokens import FAILURES, Refused, accepted_for

log = structlog.get_logger(__name__)

EDITABLE = frozenset(TEMPLATE_FIELDS) - {"id", "name", "language", "status"}
EDITABLE_STATUSES = frozenset({"APPROVED", "REJECTED", "PAUSED"})
"""The statuses in which Meta accepts an edit (upstream fact 1.3)."""
LIBRARY_PARAMETERS = (
    "search",
    "topic",
    "usecase",
    "industry",
    "language",
    "category",
    "name",
    "limit",
    "after",
    "before",
)


@dataclass(frozen=True, slots=True)
class AccountChoice:
    """Chooses the account for a call by tenant and environment, and by the caller's `waba_id` or `from` if given."""

    tenant_id: UUID
    environment: str
    waba_id: str | None = None
    from_: str | None = None

    def accounts(self) -> QuerySet[BusinessAccount]:
        """The accounts that match, newest first. Raises InvalidRequest if the named account is not the tenant's."""
        accounts = BusinessAccount.objects.for_environment(self.tenant_id, self.environment)
        if self.from_ is not None:
            number = required_sender(tenant_id=self.tenant_id, environment=self.environment, from_=self.from_)
            if self.waba_id not in {None, number.waba_id}:
                raise InvalidRequest.of(waba_id="The number in `from` belongs to another business account.")
            accounts = accounts.filter(waba_id=number.waba_id)
        elif self.waba_id is not None:
            accounts = accounts.filter(waba_id=self.waba_id)
            if not accounts.exists():
                raise InvalidRequest.of(
                    waba_id=f"Not one of this tenant's {self.environment} business accounts."
                )
        return accounts.order_by("-id")

    def account(self) -> BusinessAccount:
        """The only account that matches. Raises InvalidRequest when no account or several accounts match."""
        found = list(self.accounts()[:2])
        if not found:
            raise InvalidRequest.of(
                waba_id=f"There is no {self.environment} business account: connect a number."
            )
        if len(found) > 1:
            raise InvalidRequest.of(
                waba_id="There are several business accounts: name one by `waba_id` or `from`."
            )
        return found[0]

    def any_account(self) -> BusinessAccount:
        """Any account that matches, for calls that all accounts answer alike. Accounts that Meta has not taken away and
        whose token works are preferred. Raises InvalidRequest.

        The oldest of these is chosen, so that a new account does not change the choice during a resumable upload.
        """
        found = list(self.accounts().reverse())
        working = [
            account for account in found if account.token_invalid_at is None and not account.taken_away
        ]
        return (working or found or [self.account()])[0]


def find(*, tenant_id: UUID, environment: str, template_id: str) -> MessageTemplate:
    """The tenant's template by Meta's id, with its account. Raises NotFound."""
    rows = MessageTemplate.objects.for_tenant(tenant_id).select_related("account")
    row = rows.filter(template_id=template_id, environment=environment).first()
    if row is None:
        raise NotFound("There is no such template. POST /v1/templates/sync imports what was made elsewhere.")
    return row


def create(account: BusinessAccount, *, body: bytes, members: Mapping[str, Any]) -> GraphAnswer:
    """Submit a template. `body` is sent to Meta; `members` is `body`, parsed."""
    since = now()
    with _rereading_unknown(account):
        answer = accepted_for(account, _graph(account).create(account.waba_id, body))
    mirror.store_one(account, {**_described(members), **answer.json()}, since=since, at=now())
    mirror.reread_soon(account)
    return answer


def get(template: MessageTemplate) -> GraphAnswer:
    """Read a template from Meta and store it in the mirror."""
    account, since = template.account, now()
    try:
        answer = accepted_for(account, _graph(account).template(template.template_id))
    except Refused as refusal:
        if _is_gone(refusal):
            mirror.delete(account, template_id=template.template_id)
        raise
    mirror.store_one(account, answer.json(), since=since)
    return answer


def edit(template: MessageTemplate, *, body: bytes, members: Mapping[str, Any]) -> GraphAnswer:
    """Change a template. Meta then reviews it again."""
    account, since = template.account, now()
    with _rereading_unknown(account):
        answer = accepted_for(account, _graph(account).edit(template.template_id, body))
    edited = {name: value for name, value in _described(members).items() if name in EDITABLE}
    mirror.change(account, template.template_id, {**edited, "status": "PENDING"}, since=since)
    return answer


def delete(template: MessageTemplate, *, all_languages: bool) -> GraphAnswer:
    """Delete one language of a template, or all languages of its name."""
    account = template.account
    chosen = None if all_languages else template.template_id
    with _rereading_unknown(account):
        answer = accepted_for(
            account, _graph(account).delete(account.waba_id, name=template.name, template_id=chosen)
        )
    mirror.delete(account, name=template.name, template_id=chosen)
    return answer


def sync_now(choice: AccountChoice) -> dict[str, Any]:
    """Read every template of the accounts chosen. Accounts that could not be read are listed in `failed`.

    Raises the first error when no account could be read.
    """
    totals = {"synced": 0, "added": 0, "updated": 0, "removed": 0}
    failed: dict[str, Exception] = {}
    accounts = list(choice.accounts())
    for account in accounts:
        try:
            changes = mirror.read_all(account)
        except FAILURES as error:
            failed[account.waba_id] = error
            log.warning("template_sync_failed", account=str(account.pk), error=type(error).__name__)
            continue
        for name in totals:
            totals[name] += getattr(changes, name)
    if failed and len(failed) == len(accounts):
        raise next(iter(failed.values()))
    return {**totals, "failed": list(failed)} if failed else totals


def library(account: BusinessAccount, params: Mapping[str, str]) -> GraphAnswer:
    """A page of Meta's library of ready-made templates. Its links to further pages lead to this service.

    Meta's own links may contain the access token, and do not work without a token.
    """
    wanted = {name: value for name, value in params.items() if name in LIBRARY_PARAMETERS}
    answer = accepted_for(account, _graph(account).library(wanted))
    return replace(answer, body=_with_own_links(answer.body))


def upload_sample(account: BusinessAccount, file: Upload) -> GraphAnswer:
    """Stream a sample for a header to Meta. The answer has the handle for `example.header_handle` (upstream fact 1.4).

    An interrupted upload is continued once, from the first byte that Meta lacks. Raises the errors of `accepted_for`.
    """
    graph = _graph(account)
    started = accepted_for(
        account, graph.start_upload(name=file.name, length=file.length, mime_type=file.mime_type)
    )
    session = started.json().get("id")
    if not isinstance(session, str) or not session.startswith("upload:"):
        raise MetaUnreachable(
            details={"timeout_ms": settings.UPSTREAM_TIMEOUT_MS, "upstream_status": started.status}
        )
    file.content.seek(0)
    try:
        answer = graph.continue_upload(session, FileBody(file.content, length=file.length), offset=0)
    except UpstreamUnreachable:
        arrived = str(accepted_for(account, graph.upload_offset(session)).json().get("file_offset"))
        offset = min(int(arrived), file.length) if arrived.isdecimal() else 0
        file.content.seek(offset)
        rest = FileBody(file.content, length=file.length - offset)
        answer = graph.continue_upload(session, rest, offset=offset)
    return accepted_for(account, answer)


def rendered(template: MessageTemplate) -> orjson.Fragment:
    """A template as the API lists it: Meta's object, unchanged."""
    return orjson.Fragment(template.document)


@contextmanager
def _rereading_unknown(account: BusinessAccount) -> Iterator[None]:
    """Run a command. If its outcome is unknown, schedule a read of the templates, which shows the outcome."""
    try:
        yield
    except (UpstreamUnreachable, MetaUnreachable):
        mirror.reread_soon(account)
        raise


def _graph(account: BusinessAccount) -> TemplateGraph:
    return TemplateGraph(account.environment, account.access_token)


def _is_gone(refusal: Refused) -> bool:
    error = refusal.answer.json().get("error")
    subcode = error.get("error_subcode") if isinstance(error, dict) else None
    return refusal.verdict.code == 100 and subcode == GONE


def _described(members: Mapping[str, Any]) -> dict[str, Any]:
    """The members of a caller's body that describe the template. Instructions to Meta are left out."""
    return {name: value for name, value in members.items() if name in TEMPLATE_FIELDS}


def _with_own_links(body: bytes) -> bytes:
    paging = root_members(body).get("paging")
    if paging is None or body[paging.value] != ord("{"):
        return body
    links = [
        member for name, member in members_at(body, paging.value).items() if name in {"next", "previous"}
    ]
    for link in sorted(links, reverse=True):
        value = orjson.loads(body[link.value : link.end])
        query = dict(parse_qsl(urlsplit(value).query)) if isinstance(value, str) else {}
        kept = {name: text for name, text in query.items() if name in LIBRARY_PARAMETERS}
        own = f"{settings.BASE_URL}/v1/templates/library?{urlencode(kept)}"
        body = body[: link.value] + orjson.dumps(own) + body[link.end :]
    return body
