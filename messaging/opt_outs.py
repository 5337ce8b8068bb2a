"""Opt-outs: customers who want no marketing messages from a number. Meta reports them, or they write a stop word.

An opt-out holds back only messages of batches with `skip_opted_out`. Its source is `user_preferences` (upstream fact
3.7) or a stop word (`stop_words.yaml`) as a whole message or a button. For each source the customer's last decision
counts, even if notifications arrive out of order. Meta's `resume` ends the opt-outs of both sources. A start word ends
only the opt-out by a stop word.

The incoming flow applies opt-outs inside its transaction. When a customer's state changes, it publishes
`customer.opt_out`.
"""

import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple
from uuid import UUID

import orjson
import yaml
from django.db import connection
from django.db.models import F, Q, QuerySet

from gateway import ids
from gateway.clock import isoformat
from gateway.upstream.notifications.change import NOBODY, Person, column
from gateway.upstream.notifications.lossless_json import JsonObject, member, objects, text
from gateway.upstream.notifications.normalise import Change
from messaging.models import OptOut
from phone_numbers.models import PhoneNumber
from phone_numbers.senders_and_owners import NumberRoute
from webhooks.events.envelope import NewEvent
from webhooks.events.publish import publish
from webhooks.models import Message

Source = Literal["whatsapp", "stop_word"]
SOURCES: tuple[Source, ...] = ("whatsapp", "stop_word")
MARKETING = "marketing_messages"
STOPPED = Q(reported_stop=True) | Q(wrote_stop=True)
LONGEST_WORD = 40
"""The longest message that is compared with the stop and start words, in characters."""
_EMOJI_STYLE = "\ufe0f"
"""Follows a symbol that is shown as an emoji. A mark by its category, as the vowels at the end of words are."""

# A row gets a new id when its state changes. The id shows whether this statement made the change, even if another
# process writes the same row.
_STATE = "({row}.reported_stop OR {row}.wrote_stop)"
_REPORTED = "excluded.reported_at >= COALESCE(o.reported_at, excluded.reported_at)"
_WROTE = "excluded.wrote_at >= COALESCE(o.wrote_at, excluded.wrote_at)"
_NOW_STOPPED = f"""(
    CASE WHEN {_REPORTED} THEN excluded.reported_stop ELSE o.reported_stop END
    OR CASE WHEN {_WROTE} THEN excluded.wrote_stop ELSE o.wrote_stop END
)"""
_RECORD = f"""
INSERT INTO messaging_optout AS o (tenant_id, environment, phone_number_id, customer, id, wa_id, user_id,
    reported_stop, reported_at, wrote_stop, wrote_at)
SELECT %(tenant_id)s, %(environment)s, %(phone_number_id)s, customer, %(id)s, %(wa_id)s, %(user_id)s,
    %(reported_stop)s, %(reported_at)s, %(wrote_stop)s, %(wrote_at)s
FROM unnest(%(customers)s::text[]) AS c (customer) ORDER BY customer
ON CONFLICT (tenant_id, environment, phone_number_id, customer) DO UPDATE SET
    id = CASE WHEN {_NOW_STOPPED} <> {_STATE.format(row="o")} THEN excluded.id ELSE o.id END,
    wa_id = COALESCE(excluded.wa_id, o.wa_id),
    user_id = COALESCE(excluded.user_id, o.user_id),
    reported_stop = CASE WHEN {_REPORTED} THEN excluded.reported_stop ELSE o.reported_stop END,
    reported_at = GREATEST(o.reported_at, excluded.reported_at),
    wrote_stop = CASE WHEN {_WROTE} THEN excluded.wrote_stop ELSE o.wrote_stop END,
    wrote_at = GREATEST(o.wrote_at, excluded.wrote_at)
RETURNING o.id, xmax = 0, {_STATE.format(row="o")}
"""  # noqa: S608 - only expressions of this module are formatted in

# A number that moved twice has several former rows, each with the decisions it took along, so a customer's newest row
# counts. Each copy has an id of its own, of the same time: lists are read on after an id.
_TAKE_ALONG = """
INSERT INTO messaging_optout (tenant_id, environment, phone_number_id, customer, id, wa_id, user_id,
    reported_stop, reported_at, wrote_stop, wrote_at)
SELECT DISTINCT ON (o.customer) o.tenant_id, o.environment, %(phone_number_id)s, o.customer,
    (substr(o.id::text, 1, 13) || '-7' || substr(gen_random_uuid()::text, 16))::uuid, o.wa_id, o.user_id,
    o.reported_stop, o.reported_at, o.wrote_stop, o.wrote_at
FROM messaging_optout o
JOIN numbers_phonenumber n ON n.tenant_id = o.tenant_id AND n.phone_number_id = o.phone_number_id
WHERE o.tenant_id = %(tenant_id)s AND o.environment = %(environment)s AND n.environment = %(environment)s
  AND n.digits = %(digits)s AND o.phone_number_id <> %(phone_number_id)s
ORDER BY o.customer, GREATEST(o.reported_at, o.wrote_at) DESC
ON CONFLICT DO NOTHING
"""
# The parameters are arrays, because binding ten thousand single parameters would take longer than the query.
_AMONG = """
SELECT o.phone_number_id, o.customer, o.reported_at, o.reported_stop, o.wrote_at, o.wrote_stop
FROM messaging_optout o
WHERE o.tenant_id = %(tenant_id)s AND o.environment = %(environment)s
  AND o.phone_number_id = ANY(%(phone_number_ids)s::text[]) AND o.customer = ANY(%(customers)s::text[])
"""
# The other id of each customer, from the newest message with both. A range instead of an equality makes the planner
# walk the index in order and stop early.
_OTHER_ID = """
SELECT c.customer, linked.{other}
FROM unnest(%({given}s)s::text[]) AS c (customer)
    CROSS JOIN LATERAL (
        SELECT m.{other} FROM messages m
        WHERE m.tenant_id = %(tenant_id)s AND m.{given} BETWEEN c.customer AND c.customer AND m.{other} IS NOT NULL
          AND m.environment = %(environment)s AND m.phone_number_id = ANY(%(phone_number_ids)s::text[])
        ORDER BY m.{given}, m.id DESC LIMIT 1
    ) AS linked
"""
_OTHER_IDS = " UNION ALL ".join(
    _OTHER_ID.format(given=given, other=other)
    for given, other in (("wa_id", "user_id"), ("user_id", "wa_id"))
)


def on_number_stored(*, instance: PhoneNumber, created: bool, **_: Any) -> None:
    """Take the opt-outs of a number along to its new row: a number that moves to another account gets a new
    phone_number_id.
    """
    if created and instance.digits:
        with connection.cursor() as cursor:
            cursor.execute(
                _TAKE_ALONG,
                {
                    "tenant_id": instance.tenant_id,
                    "environment": instance.environment,
                    "phone_number_id": instance.phone_number_id,
                    "digits": instance.digits,
                },
            )


class Decisions(NamedTuple):
    """What is stored of a customer's last decisions under one id."""

    reported_at: datetime | None
    reported_stop: bool
    wrote_at: datetime | None
    wrote_stop: bool


class Said(NamedTuple):
    """A customer's decision about marketing messages, from one source."""

    wa_id: str | None
    user_id: str | None
    stop: bool
    source: Source
    at: datetime


def of_customer(*, customers: Iterable[str | None], **scope: Any) -> OptOut:
    """Find a customer's last decision from each source about a number, stored under any of the customer's ids."""
    rows = OptOut.objects.filter(**scope, customer__in=list(filter(None, customers)))
    known = [Decisions(*said) for said in rows.values_list(*Decisions._fields)]
    return OptOut(**_last(known)._asdict())


def _last(known: Sequence[Decisions]) -> Decisions:
    """The last decision from each source."""
    reported = [(each.reported_at, each.reported_stop) for each in known if each.reported_at is not None]
    wrote = [(each.wrote_at, each.wrote_stop) for each in known if each.wrote_at is not None]
    return Decisions(*max(reported, default=(None, False)), *max(wrote, default=(None, False)))


def among(
    *,
    tenant_id: UUID,
    environment: str,
    phone_number_ids: Iterable[str],
    customers: Iterable[str | None],
) -> set[tuple[str, str]]:
    """The (number, customer) pairs in which the customer, by wa_id or user_id, has opted out of the number: the last
    decision under either id counts. It is stored under the ids that were known then, and a later message may have named
    the other id.
    """
    wanted, numbers = set(filter(None, customers)), set(phone_number_ids)
    wa_ids = {customer for customer in wanted if customer.isdigit()}
    scope: dict[str, Any] = {
        "tenant_id": tenant_id,
        "environment": environment,
        "phone_number_ids": list(numbers),
    }
    with connection.cursor() as cursor:
        cursor.execute(_OTHER_IDS, {**scope, "wa_ids": list(wa_ids), "user_ids": list(wanted - wa_ids)})
        others: dict[str, str] = dict(cursor.fetchall())
        cursor.execute(_AMONG, {**scope, "customers": list(wanted.union(others.values()))})
        known = {(number, customer): Decisions(*said) for number, customer, *said in cursor.fetchall()}
    found = set()
    for number in numbers:
        for customer in wanted:
            names = (number, customer), (number, others.get(customer, customer))
            said = _last([known[name] for name in names if name in known])
            if said.reported_stop or said.wrote_stop:
                found.add((number, customer))
    return found


def opted_out(*, tenant_id: UUID, environment: str) -> QuerySet[OptOut]:
    """The customers who are opted out now, one row each: the row of the phone number, or the row of the user id if the
    phone number is unknown.
    """
    rows = OptOut.objects.filter(STOPPED, tenant_id=tenant_id, environment=environment)
    return rows.filter(Q(wa_id__isnull=True) | Q(customer=F("wa_id")))


# --- Opt-outs in notifications.
_MOVES = ("user_changed_number", "user_changed_user_id", "customer_changed_number")
"""Types of system messages that give a customer's new ids (upstream fact 3.4)."""


OF_MESSAGES = ("messages", "standby")
"""The fields of a customer's messages: in `standby` while Meta's agent handles the chat (upstream fact 3.11)."""


def concerns(change: Change) -> bool:
    """Whether a change of `OF_MESSAGES` has a message that is a stop or start word, or gives a customer's new ids.
    Called for every notification of messages.
    """
    return any(
        _word_of(item) is not None or _new_ids(item) != NOBODY
        for _, item in objects(_holder(change), "messages")
    )


def apply(change: Change, number: NumberRoute) -> None:
    """Record the opt-outs in a change for a number, and publish the changed states. Runs inside the transaction of the
    incoming flow.

    While a number moves to another account, it has two rows. Both get the decisions, and the event is that of the row
    to which the customer wrote.
    """
    scope: dict[str, Any] = {
        "tenant_id": number.tenant_id,
        "environment": number.environment,
        "phone_number_id": number.phone_number_id,
    }
    rows = PhoneNumber.objects.for_environment(number.tenant_id, number.environment).exclude(digits="")
    same = rows.filter(digits=number.digits).values_list("phone_number_id", flat=True)
    names = sorted({number.phone_number_id, *same})
    events = []
    for decisions in (_said(change), _moved(change, scope)):
        for said in _in_order(decisions, scope):
            for each in names:
                event = _record(said, number, {**scope, "phone_number_id": each})
                if event is not None and each == number.phone_number_id:
                    events.append(event)
    publish(tenant_id=number.tenant_id, events=events)


def _in_order(decisions: Iterable[Said], scope: Mapping[str, Any]) -> list[Said]:
    """The decisions with both ids of each customer, in the order of the ids. So two notifications about the same
    customers wait for each other instead of deadlocking.
    """
    named = [
        said._replace(**_both_ids(scope, Person(said.wa_id, said.user_id))._asdict()) for said in decisions
    ]
    return sorted(named, key=lambda said: (said.wa_id or "", said.user_id or ""))


def _said(change: Change) -> Iterator[Said]:
    is_report = change.field == "user_preferences"
    for item, person in _items(change, "user_preferences" if is_report else "messages"):
        seconds = text(item.get("timestamp")) or ""
        if not (seconds.isascii() and seconds.isdigit() and len(seconds) <= 11):
            continue
        at = datetime.fromtimestamp(int(seconds), UTC)
        if not is_report:
            if (stop := _word_of(item)) is not None:
                yield Said(*person, stop, "stop_word", at)
        elif item.get("category") == MARKETING and item.get("value") in {"stop", "resume"}:
            yield Said(*person, item["value"] == "stop", "whatsapp", at)


def _moved(change: Change, scope: Mapping[str, Any]) -> Iterator[Said]:
    """The decisions of customers who have new ids, for these ids. They stay valid for the former ids."""
    for item, former in _items(change, "messages") if change.field in OF_MESSAGES else ():
        if (new := _new_ids(item)) == NOBODY:
            continue
        previous = former._replace(user_id=_id(item, "previous_user_id") or former.user_id)
        known = of_customer(**scope, customers={*former, *_both_ids(scope, previous)})
        if known.reported_at is not None:
            yield Said(*new, known.reported_stop, "whatsapp", known.reported_at)
        if known.wrote_at is not None:
            yield Said(*new, known.wrote_stop, "stop_word", known.wrote_at)


def _items(change: Change, name: str) -> Iterator[tuple[JsonObject, Person]]:
    """The items in the list `name`, each with its customer. Items without a customer are left out."""
    items = _holder(change).get(name)
    # The drafts begin with one draft for each item of this list.
    for item, draft in zip(items if isinstance(items, list) else (), change.drafts, strict=False):
        if isinstance(item, dict) and (draft.wa_id or draft.user_id):
            yield item, Person(draft.wa_id, draft.user_id)


def _holder(change: Change) -> JsonObject:
    """The object with a change's lists."""
    value = change.value or {}
    return member(value, "standby") if change.field == "standby" else value


def _new_ids(item: JsonObject) -> Person:
    """The ids that a customer has from now on, by a system message. Nobody for any other message."""
    if item.get("type") != "system" or member(item, "system").get("type") not in _MOVES:
        return NOBODY
    return Person(_id(item, "wa_id") or _id(item, "new_wa_id"), _id(item, "user_id"))


def _id(item: JsonObject, name: str) -> str | None:
    return column(text(member(item, "system").get(name)))


def _word_of(item: JsonObject) -> bool | None:
    """True for a stop word, False for a start word. None for any other message, and for a message in a group."""
    if "group_id" in item:
        return None
    match item.get("type"):
        case "text":
            said = member(item, "text").get("body")
        case "button":
            said = member(item, "button").get("text")
        case "interactive":
            said = member(member(item, "interactive"), "button_reply").get("title")
        case _:
            return None
    if not isinstance(said, str) or len(said) > LONGEST_WORD:
        return None
    return words().get(_plain(said))


@cache
def words() -> Mapping[str, bool]:
    """Every word of `stop_words.yaml`: True for a stop word, False for a start word."""
    by_language = yaml.safe_load((Path(__file__).parent / "stop_words.yaml").read_text())
    return {
        _plain(word): kind == "stop"
        for kinds in by_language.values()
        for kind, listed in kinds.items()
        for word in listed
    }


def _plain(said: str) -> str:
    """A word in the form that is compared: without case, and without punctuation, symbols, blanks and invisible
    characters around it.
    """
    normal = unicodedata.normalize("NFKC", said).casefold()
    around = "".join(each for each in set(normal) if unicodedata.category(each)[0] in "PSZC") + _EMOJI_STYLE
    return " ".join(normal.strip(around).split())


def _record(said: Said, number: NumberRoute, scope: Mapping[str, Any]) -> NewEvent | None:
    """Store a customer's decision under each of the customer's ids. Returns the event of a changed state, or None."""
    is_report = said.source == "whatsapp"
    # Meta's `resume` also ends an opt-out that a stop word caused.
    is_word = not is_report or not said.stop
    change_id = ids.uuid7()
    with connection.cursor() as cursor:
        cursor.execute(
            _RECORD,
            {
                **scope,
                "customers": [customer for customer in (said.wa_id, said.user_id) if customer],
                "id": change_id,
                "wa_id": said.wa_id,
                "user_id": said.user_id,
                "reported_stop": is_report and said.stop,
                "reported_at": said.at if is_report else None,
                "wrote_stop": is_word and said.stop,
                "wrote_at": said.at if is_word else None,
            },
        )
        written = cursor.fetchall()
    stopped = any(is_stopped for _, _, is_stopped in written)
    was_stopped = any(
        not is_new and is_stopped != (row_id == change_id) for row_id, is_new, is_stopped in written
    )
    if stopped == was_stopped:
        return None
    data = {
        "opted_out": stopped,
        "source": said.source,
        "at": isoformat(said.at),
        "wa_id": said.wa_id,
        "user_id": said.user_id,
    }
    return NewEvent(
        type="customer.opt_out",
        environment=number.environment,
        waba_id=number.waba_id,
        phone_number_id=number.phone_number_id,
        display_phone_number=number.digits or None,
        wa_id=said.wa_id,
        user_id=said.user_id,
        dedupe_key=f"optout:{change_id}",
        data=orjson.dumps(data),
    )


def _both_ids(scope: Mapping[str, Any], person: Person) -> Person:
    """The customer's wa_id and user_id. An id that the notification lacks comes from the newest message with both."""
    if person.wa_id and person.user_id:
        return person
    given = {"wa_id": person.wa_id} if person.wa_id else {"user_id": person.user_id}
    known = Message.objects.filter(**scope, **given, wa_id__isnull=False, user_id__isnull=False)
    both = known.order_by("-id").values_list("wa_id", "user_id").first()
    return Person(*both) if both else person
