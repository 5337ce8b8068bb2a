"""Reads conversations: the list, the search, and the messages of one conversation.

Conversations have no table; only read marks are stored. Each read walks an index of the event log or the message log
from the newest row, and reads a bounded number of rows. Texts come from the stored bodies within retention.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import orjson

from gateway import ids
from gateway.clock import now
from gateway.database.bounded_walk import FIRST_ID, LAST_ID, MOST_WALKED, RECENT, id_after_all
from gateway.database.statements import bulk_cursor
from messaging import opt_outs
from messaging.conversations import drawing, read_marks
from messaging.conversations.drawing import Documents, Said
from messaging.message_log import message_search
from messaging.message_log.customers import OPENS_WINDOW, WINDOW
from messaging.message_log.message_search import MESSAGES
from messaging.models import MessageTemplate
from webhooks.models import Event, Message

SHORT_WALK = 1_000
"""How many inbound messages the first walk for a page reads. For most pages this is enough."""
NEWEST = 100
"""How many of a conversation's newest messages the list reads. If none of them is from the customer, the list does
not know the customer's name or the window.
"""
DELETABLE = timedelta(days=3)
"""A customer can delete or edit a message for less than this time."""
MOST_SEARCHED = 1_000
"""How many messages one page of a search reads, or how many customers a search by their number."""
_DIGITS = re.compile(r"\+?[0-9][0-9\s().-]{2,30}")
_LONGEST_NUMBER = 20
_PLAIN = re.compile(r"[a-z0-9 ,.!?]+")
"""Texts that every JSON library writes without escapes."""

# Reads the newest inbound event of each customer of a tenant, newest first, by the index `event_by_type`. The event of
# a message in a group names its writer, but the message log does not. Only a tenant with groups has such events. If the
# customer wrote again later, an earlier page already has the conversation. A probe of the message log, by its index of
# customers, finds that later message and excludes the event. OFFSET makes the probes start at the newest event and stop
# when the page is full. `ended` is the id at which a walk reached its limit.
_HEADS = """
WITH walked AS MATERIALIZED (
    SELECT id, phone_number_id, wa_id, user_id, wamid FROM events
    WHERE tenant_id = %(tenant_id)s AND environment = %(environment)s AND type = 'message.inbound'
      AND id >= %(first)s AND id < %(before)s
      AND (%(number)s::text IS NULL OR phone_number_id = %(number)s)
    ORDER BY id DESC LIMIT %(walked)s
), has_groups AS MATERIALIZED (
    SELECT 1 FROM messaging_knownnode
    WHERE tenant_id = %(tenant_id)s AND environment = %(environment)s AND kind = 'group' LIMIT 1
), ranked AS (
    SELECT *,
        row_number() OVER (PARTITION BY phone_number_id, wa_id ORDER BY id DESC) AS of_wa_id,
        row_number() OVER (PARTITION BY phone_number_id, user_id ORDER BY id DESC) AS of_user_id
    FROM walked w
    WHERE phone_number_id IS NOT NULL AND coalesce(wa_id, user_id) IS NOT NULL
      AND (NOT EXISTS (SELECT 1 FROM has_groups) OR NOT EXISTS (
          SELECT 1 FROM messages m
          WHERE m.tenant_id = %(tenant_id)s AND m.environment = %(environment)s AND m.key = w.wamid
            AND m.month = date_trunc('month', to_timestamp(
                ('x' || left(replace(w.id::text, '-', ''), 12))::bit(48)::bigint / 1000
            ) AT TIME ZONE 'UTC')::date
            AND m.wa_id IS NULL AND m.user_id IS NULL
      ))
)
SELECT h.id, h.phone_number_id, h.wa_id, h.user_id,
       (SELECT min(id::text)::uuid FROM walked HAVING count(*) >= %(walked)s) AS ended
FROM (SELECT 1) AS always LEFT JOIN LATERAL (
    SELECT * FROM (
        SELECT * FROM ranked
        WHERE (wa_id IS NULL OR of_wa_id = 1) AND (user_id IS NULL OR of_user_id = 1)
        ORDER BY id DESC OFFSET 0
    ) AS r
    WHERE {is_latest}
    ORDER BY id DESC LIMIT %(limit)s
) AS h ON true
ORDER BY h.id DESC
"""
_LATER = """SELECT 1 FROM messages m
    WHERE m.tenant_id = %(tenant_id)s AND m.{customer} = r.{customer} AND m.id >= %(before)s AND m.month >= %(month)s
      AND m.environment = %(environment)s AND m.phone_number_id = r.phone_number_id AND m.direction = 'inbound'"""
_IS_LATEST = " AND ".join(f"NOT EXISTS ({_LATER.format(customer=name)})" for name in ("wa_id", "user_id"))
# The newest messages of a customer, through the index of each known id. When the id comes from a join, the planner
# assumes a customer with few messages. It would then read and sort all messages of a busy customer. A range instead of
# an equality makes the planner walk the index in order and stop early.
_OF_CUSTOMER = f"""
    (SELECT {", ".join(f"m.{column}" for column in MESSAGES.columns)} FROM messages m
     WHERE m.tenant_id = %(tenant_id)s AND {{of_wa_id}} AND m.environment = %(environment)s
       AND m.phone_number_id = {{number}} AND m.month >= %(month)s AND m.id < %(before)s
     ORDER BY m.wa_id, m.id DESC LIMIT %(most)s)
    UNION
    (SELECT {", ".join(f"m.{column}" for column in MESSAGES.columns)} FROM messages m
     WHERE m.tenant_id = %(tenant_id)s AND {{of_user_id}} AND m.environment = %(environment)s
       AND m.phone_number_id = {{number}} AND m.month >= %(month)s AND m.id < %(before)s
     ORDER BY m.user_id, m.id DESC LIMIT %(most)s)
"""  # noqa: S608 - only column names are formatted in
_OF_ONE = _OF_CUSTOMER.format(
    number="%(number)s", of_wa_id="m.wa_id = %(wa_id)s", of_user_id="m.user_id = %(user_id)s"
)
_OF_EACH = _OF_CUSTOMER.format(
    number="h.number",
    of_wa_id="m.wa_id BETWEEN h.wa_id AND h.wa_id",
    of_user_id="m.user_id BETWEEN h.user_id AND h.user_id",
)
_THREAD = f"""
SELECT {MESSAGES} FROM ({_OF_ONE}) AS found
WHERE event_id IS NOT NULL ORDER BY id DESC LIMIT %(most)s
"""  # noqa: S608 - only column names are formatted in
# For each conversation: the newest message, the customer's newest message, and the count of unread messages. Messages
# imported from the app are never unread and open no window. `month` excludes months before the oldest conversation,
# whose newest message may be the deletion of an earlier one.
_FACTS = f"""
WITH walk AS MATERIALIZED (
    SELECT h.place, m.*,
        count(*) FILTER (WHERE m.direction = 'inbound' AND m.history IS NOT TRUE AND m.id > h.through)
            OVER (PARTITION BY h.place) AS unread
    FROM unnest(%(numbers)s::text[], %(wa_ids)s::text[], %(user_ids)s::text[], %(throughs)s::uuid[])
        WITH ORDINALITY AS h (number, wa_id, user_id, through, place)
    CROSS JOIN LATERAL ({_OF_EACH}) AS m
    WHERE m.event_id IS NOT NULL
)
SELECT DISTINCT ON (place, kind) place, kind, unread, {MESSAGES}
FROM walk CROSS JOIN LATERAL (
    VALUES ('last', true),
        ('inbound', {OPENS_WINDOW})
) AS each (kind, holds)
WHERE holds ORDER BY place, kind, CASE WHEN kind = 'inbound' THEN sent_at END DESC NULLS LAST, id DESC
"""  # noqa: S608 - only column names and a condition are formatted in
# Customers whose number begins with a prefix: each step through the index of customers finds the next number. Every
# collation sorts digits in the same way. The steps do not look for messages with the scope's number, because a step
# could then read all messages with other numbers. Instead, each customer's newest message with each number, among the
# newest `most`, is looked up in a nested loop, which takes the steps one by one and ends when the page is full or
# `walked` customers were read.
_BY_NUMBER = """
WITH RECURSIVE found (wa_id) AS (
    (SELECT m.wa_id FROM messages m
     WHERE m.tenant_id = %(tenant_id)s AND m.wa_id >= %(low)s AND m.wa_id <= %(high)s
       AND m.environment = %(environment)s AND m.phone_number_id IS NOT NULL
     ORDER BY m.wa_id LIMIT 1)
    UNION ALL
    SELECT (
        SELECT m.wa_id FROM messages m
        WHERE m.tenant_id = %(tenant_id)s AND m.wa_id > found.wa_id AND m.wa_id <= %(high)s
          AND m.environment = %(environment)s AND m.phone_number_id IS NOT NULL
        ORDER BY m.wa_id LIMIT 1
    ) FROM found WHERE found.wa_id IS NOT NULL
)
SELECT id, phone_number_id, wa_id, user_id FROM (
    SELECT newest.*
    FROM (SELECT wa_id FROM found WHERE wa_id IS NOT NULL LIMIT %(walked)s) AS found
    CROSS JOIN LATERAL (
        SELECT DISTINCT ON (phone_number_id) id, phone_number_id, wa_id, user_id FROM (
            SELECT m.id, m.phone_number_id, m.wa_id, m.user_id FROM messages m
            WHERE m.tenant_id = %(tenant_id)s AND m.wa_id = found.wa_id AND m.environment = %(environment)s
              AND (%(number)s::text IS NULL OR m.phone_number_id = %(number)s) AND m.phone_number_id IS NOT NULL
            ORDER BY m.id DESC LIMIT %(most)s
        ) AS own
        ORDER BY phone_number_id, id DESC
    ) AS newest
    LIMIT %(limit)s
) AS found
ORDER BY id DESC
"""
# The newest messages with their bodies, for a search in their texts.
_NEWEST_OF_ALL = f"""
SELECT {MESSAGES} FROM messages
WHERE tenant_id = %(tenant_id)s AND environment = %(environment)s AND id < %(before)s AND month >= %(month)s
ORDER BY id DESC LIMIT %(walked)s
"""  # noqa: S608 - only column names are formatted in


@dataclass(frozen=True, slots=True)
class Scope:
    """The conversations to read: those of a tenant, in one environment, with one number or (None) with all numbers."""

    tenant_id: UUID
    environment: str
    number: str | None = None

    @property
    def values(self) -> dict[str, Any]:
        return {"tenant_id": self.tenant_id, "environment": self.environment, "number": self.number}


@dataclass(frozen=True, slots=True)
class Parties:
    """The parties of a conversation: the number and the customer's ids."""

    phone_number_id: str
    wa_id: str | None
    user_id: str | None

    @property
    def customer(self) -> str:
        """The customer's id in URLs of pages."""
        return self.wa_id or self.user_id or ""

    @property
    def key(self) -> str:
        """The key of the conversation within a list."""
        return f"{self.phone_number_id}/{self.customer}"

    @property
    def keys(self) -> list[int]:
        """The keys of the conversation's read marks: one for each known id of the customer."""
        known = filter(None, (self.wa_id, self.user_id))
        return [read_marks.key_of(self.phone_number_id, customer) for customer in known]


@dataclass(frozen=True, slots=True)
class Head(Parties):
    """A conversation, found through one of its messages."""

    message_id: UUID


@dataclass(frozen=True, slots=True)
class Conversation:
    """A row of the list."""

    head: Head
    last: Said
    gist: str
    name: str
    unread: int
    open_until: datetime | None
    """When the 24-hour window ends or ended. None for a customer who never wrote."""
    opted_out: bool = False
    """Whether the customer opted out of marketing messages."""

    @property
    def is_open(self) -> bool:
        """Whether the window is open, so that a text may be sent."""
        return self.open_until is not None and self.open_until > now()


@dataclass(frozen=True, slots=True)
class Page:
    """Conversations, and the `before` with which to request the next page. `before` is None on the last page."""

    rows: Sequence[Conversation]
    before: UUID | None
    since: datetime | None = None
    """How far back a search has read."""
    is_full: bool = False
    """Whether a search by number may have found more conversations than the page shows."""


@dataclass(frozen=True, slots=True)
class Thread:
    """Messages of a conversation, newest first, and the id to pass for the next, older page."""

    messages: Sequence[Said] = field(default_factory=list)
    before: UUID | None = None


def newest(scope: Scope, *, since: datetime, limit: int, before: UUID | None = None) -> Page:
    """Conversations in which the customer wrote, the latest first. Only messages after `since` can be unread.

    The walk is bounded. So a page can have fewer than `limit` rows, even none, and still have a next page.
    """
    begin = min(before or LAST_ID, id_after_all())
    recent = ids.first_at(ids.created_at(begin) - RECENT)
    found, ended = _heads(scope, recent, begin, walked=SHORT_WALK, is_first=before is None, limit=limit)
    if len(found) <= limit:
        found, ended = _heads(
            scope, FIRST_ID, begin, walked=MOST_WALKED, is_first=before is None, limit=limit
        )
    heads = found[:limit]
    older = heads[-1].message_id if len(found) > limit else ended
    return Page(_conversations(scope, heads, since), older)


def by_number(scope: Scope, typed: str, *, since: datetime, limit: int) -> Page:
    """Conversations with customers whose number begins with the typed digits, with or without India's country code."""
    digits = "".join(filter(str.isdecimal, typed))[:_LONGEST_NUMBER]
    prefixes = [digits] if typed.lstrip().startswith("+") else [digits, f"91{digits}"]
    found: dict[Head, None] = {}
    most = NEWEST if scope.number is None else 1
    bounds = {"limit": limit, "walked": MOST_SEARCHED, "most": most}
    for prefix in prefixes:
        low, high = prefix, prefix.ljust(_LONGEST_NUMBER, "9")
        values = {**scope.values, **bounds, "low": low, "high": high}
        found |= dict.fromkeys(_read(_BY_NUMBER, values))
    return Page(_conversations(scope, list(found)[:limit], since), None, is_full=len(found) >= limit)


def is_number(typed: str) -> bool:
    """Whether the search text is a number or the beginning of one."""
    return _DIGITS.fullmatch(typed) is not None


def by_text(scope: Scope, typed: str, *, since: datetime, limit: int, before: UUID | None = None) -> Page:
    """Conversations with the typed text in their newest messages or in the customer's name, the newest first.

    One page reads `MOST_SEARCHED` messages, or as many as contain `limit` conversations. `before` continues with older
    ones.
    """
    begin = min(before or LAST_ID, id_after_all())
    rows = _messages(
        _NEWEST_OF_ALL,
        {**scope.values, "before": begin, "month": ids.month_of(FIRST_ID), "walked": MOST_SEARCHED},
    )
    wanted, documents = typed.casefold(), _documents(scope, rows)
    # Skips most bodies without parsing them: JSON contains plain words literally. A template's text is not in the body.
    needle = wanted.encode() if _PLAIN.fullmatch(wanted) else b""
    contents = _contents(scope, rows)
    found: dict[tuple[str, str], Head] = {}
    end = rows[-1].id if len(rows) == MOST_SEARCHED else None
    for row in rows:
        content, customer = contents.get(row.id), row.wa_id or row.user_id
        if content is None or customer is None or row.phone_number_id is None:
            continue
        if scope.number not in {None, row.phone_number_id}:
            continue
        if row.template is None and needle not in content.lower():
            continue
        if wanted in drawing.texts(drawing.said(row, content), documents).casefold():
            key = (row.phone_number_id, customer)
            if len(found) == limit and key not in found:
                end = next(reversed(found.values())).message_id
                break
            found.setdefault(key, Head(row.phone_number_id, row.wa_id, row.user_id, row.id))
    conversations = _conversations(scope, list(found.values()), since)
    return Page(conversations, end, ids.created_at(end) if end else None)


def thread(
    scope: Scope, *, wa_id: str | None, user_id: str | None, limit: int, before: UUID | None = None
) -> Thread:
    """The newest `limit` messages between the scope's number and a customer, newest first."""
    rows = _messages(
        _THREAD,
        {
            **scope.values,
            "wa_id": wa_id,
            "user_id": user_id,
            "before": min(before or LAST_ID, id_after_all()),
            "month": ids.month_of(FIRST_ID),
            "most": limit + 1,
        },
    )
    shown = rows[:limit]
    return Thread(_said(scope, shown), shown[-1].id if len(rows) > len(shown) else None)


def documents_of(scope: Scope, messages: Iterable[Said]) -> Documents:
    """The templates of these messages, as far as the service knows them."""
    return _documents(scope, [message.row for message in messages])


def content_of(scope: Scope, key: str) -> Said:
    """One message with its stored body. Raises NotFound."""
    row = message_search.find(tenant_id=scope.tenant_id, environment=scope.environment, key=key)
    return _said(scope, [row])[0]


class Gist(NamedTuple):
    """A message in one line."""

    name: str
    """The customer's name. Empty for the business's own messages."""
    text: str
    to: str
    """The recipient in the sent request. The log has none of a message that WhatsApp refused at once."""


def gists(scope: Scope, rows: Sequence[Message]) -> list[Gist]:
    """Messages in one line each."""
    documents = _documents(scope, rows)
    return [
        Gist(said.name, drawing.gist(said, documents), drawing.recipient(said)) for said in _said(scope, rows)
    ]


def _heads(
    scope: Scope, first: UUID, before: UUID, *, walked: int, is_first: bool, limit: int
) -> tuple[list[Head], UUID | None]:
    # The first page includes the newest event, so no customer can have written later.
    is_latest = "true" if is_first else _IS_LATEST
    values = {
        **scope.values,
        "first": first,
        "before": before,
        "month": ids.month_of(before),
        "walked": walked,
        "limit": limit + 1,
    }
    with bulk_cursor(literal=True) as cursor:
        cursor.execute(_HEADS.format(is_latest=is_latest), values)
        rows = cursor.fetchall()
    heads = [
        Head(number, wa_id, user_id, message_id)
        for message_id, number, wa_id, user_id, _ in rows
        if message_id is not None
    ]
    return heads, rows[0][4]


def _read(statement: str, values: Mapping[str, Any]) -> list[Head]:
    with bulk_cursor(literal=True) as cursor:
        cursor.execute(statement, values)
        return [
            Head(number, wa_id, user_id, message_id)
            for message_id, number, wa_id, user_id in cursor.fetchall()
        ]


def _messages(statement: str, values: Mapping[str, Any]) -> list[Message]:
    with bulk_cursor(literal=True) as cursor:
        cursor.execute(statement, values)
        return [MESSAGES.instance(row) for row in cursor.fetchall()]


def _conversations(scope: Scope, heads: Sequence[Head], since: datetime) -> list[Conversation]:
    """The rows of a list, with the newest messages of each conversation and their texts."""
    if not heads:
        return []
    marks = read_marks.through(
        tenant_id=scope.tenant_id,
        environment=scope.environment,
        conversations=[key for head in heads for key in head.keys],
    )
    floor = ids.first_at(since)
    throughs = [max([floor, *(marks[key] for key in head.keys if key in marks)]) for head in heads]
    oldest = min(ids.created_at(head.message_id) for head in heads)
    values = {
        **scope.values,
        "numbers": [head.phone_number_id for head in heads],
        "wa_ids": [head.wa_id for head in heads],
        "user_ids": [head.user_id for head in heads],
        "throughs": throughs,
        "month": ids.month_of(ids.first_at(oldest - DELETABLE)),
        "before": id_after_all(),
        "most": NEWEST,
    }
    with bulk_cursor(literal=True) as cursor:
        cursor.execute(_FACTS, values)
        facts = {
            (place, kind): (unread, MESSAGES.instance(row)) for place, kind, unread, *row in cursor.fetchall()
        }
    said = {message.row.id: message for message in _said(scope, [row for _, row in facts.values()])}
    documents = _documents(scope, [row for _, row in facts.values()])
    stopped = opt_outs.among(
        tenant_id=scope.tenant_id,
        environment=scope.environment,
        phone_number_ids=[head.phone_number_id for head in heads],
        customers=[head.customer for head in heads],
    )
    found = []
    for place, head in enumerate(heads, 1):
        if (place, "last") not in facts:
            continue
        unread, last = facts[place, "last"]
        _, inbound = facts.get((place, "inbound"), (0, None))
        newest_said = said[last.id]
        found.append(
            Conversation(
                head=head,
                last=newest_said,
                gist=drawing.gist(newest_said, documents),
                name=said[inbound.id].name if inbound else "",
                unread=unread,
                open_until=(inbound.sent_at or inbound.created_at) + WINDOW if inbound else None,
                opted_out=(head.phone_number_id, head.customer) in stopped,
            )
        )
    return found


def _said(scope: Scope, rows: Sequence[Message]) -> list[Said]:
    """Messages with their stored bodies."""
    contents = _contents(scope, rows)
    return [drawing.said(row, contents.get(row.id)) for row in rows]


def _contents(scope: Scope, rows: Sequence[Message]) -> dict[UUID, bytes]:
    """The stored bodies of messages within retention, by the message's id."""
    wanted = {row.event_id for row in rows if row.event_id is not None}
    if not wanted:
        return {}
    # With the range, the planner excludes partitions.
    own = Event.objects.for_environment(scope.tenant_id, scope.environment)
    events = own.filter(pk__in=wanted, id__gte=min(wanted), id__lte=max(wanted))
    contents = message_search.contents(scope.tenant_id, list(events.only("id", "payload_expires_on")))
    return {row.id: contents[row.event_id] for row in rows if row.event_id in contents}


def _documents(scope: Scope, rows: Iterable[Message]) -> Documents:
    names = {row.template for row in rows if row.template}
    if not names:
        return {}
    own = MessageTemplate.objects.filter(
        tenant_id=scope.tenant_id, environment=scope.environment, name__in=names
    )
    return {
        (row.name, row.language): orjson.loads(row.document)
        for row in own.order_by("deleted_at", "id").only("name", "language", "document")
    }
