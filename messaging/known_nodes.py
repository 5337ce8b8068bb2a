"""Ids of Graph API objects ("nodes") and of media files, and the tenant that each id belongs to.

Numbers, accounts and templates have tables of their own. Flows, groups, catalogs, sign-up links and media files are
recorded here when an answer or a notification names them. An unrecorded id belongs to nobody. The service never
searches Meta for an id's owner, because one token may have access to the accounts of several businesses.

A media file is recorded with its number, whose token can read the file.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

from gateway.clock import now
from gateway.database.partitions import delete_before
from gateway.database.statements import Statements, run
from gateway.upstream.notifications.change import Change, flow_response
from gateway.upstream.notifications.lossless_json import JsonObject, member, objects, text
from messaging.models import KnownMedia
from phone_numbers.models import BusinessAccount, PhoneNumber

NAMED_BY = {
    "flows": "flow",
    "groups": "group",
    "message_history": "history",
    "product_catalogs": "catalog",
    "signups": "signup",
    "template_groups": "template group",
}
"""Edges of an account or number whose answers contain nodes, each with the kind of those nodes."""
GROUP_ID = re.compile(r"Y2FwaV9ncm91c[A-Za-z0-9_=-]{1,240}", re.ASCII)
"""The id of a group is the base64 of `capi_group:…`."""
NODE_ID = re.compile(rf"[0-9]{{5,64}}|{GROUP_ID.pattern}", re.ASCII)
"""The id of any other node consists of digits. The id of a group may, too."""

# One statement, because most ids of media files are found in none of these tables.
_FIND_NODE = """
SELECT 1 AS place, 'number' AS kind, id FROM numbers_phonenumber
WHERE phone_number_id = %(node_id)s AND tenant_id = %(tenant_id)s AND environment = %(environment)s
UNION ALL
SELECT 2, 'account', id FROM numbers_businessaccount
WHERE waba_id = %(node_id)s AND tenant_id = %(tenant_id)s AND environment = %(environment)s
UNION ALL
SELECT 3, 'template', account_id FROM messaging_messagetemplate
WHERE template_id = %(node_id)s AND tenant_id = %(tenant_id)s AND environment = %(environment)s
UNION ALL
SELECT 4, k.kind, a.id FROM messaging_knownnode k
JOIN numbers_businessaccount a
    ON a.waba_id = k.waba_id AND a.tenant_id = %(tenant_id)s AND a.environment = %(environment)s
WHERE k.node_id = %(node_id)s AND k.tenant_id = %(tenant_id)s AND k.environment = %(environment)s
ORDER BY place, id LIMIT 1
"""
_RECORD_NODES = """
INSERT INTO messaging_knownnode (tenant_id, environment, node_id, kind, waba_id, noted_at)
SELECT tenant_id, environment, node_id, kind, waba_id, now()
FROM unnest(%s::uuid[], %s::text[], %s::text[], %s::text[], %s::text[])
    AS n (tenant_id, environment, node_id, kind, waba_id)
ON CONFLICT (tenant_id, environment, node_id) DO UPDATE SET waba_id = excluded.waba_id
WHERE messaging_knownnode.waba_id <> excluded.waba_id
"""


@dataclass(frozen=True, slots=True)
class Node:
    """A tenant's object in the Graph API, with the account whose token has access to the object."""

    id: str
    account: BusinessAccount
    kind: str
    number: PhoneNumber | None = None


class Named(NamedTuple):
    """A node that an answer or a notification names."""

    tenant_id: UUID
    environment: str
    node_id: str
    kind: str
    waba_id: str


def find_node(node_id: str, *, tenant_id: UUID, environment: str) -> Node | None:
    """The tenant's node with this id in the environment. None if there is no such node."""
    found = run(_finding_node(node_id, tenant_id=tenant_id, environment=environment))
    if found is None:
        return None
    kind, row_id = found
    if kind == "number":
        numbers = PhoneNumber.objects.for_environment(tenant_id, environment).select_related("account")
        number = numbers.filter(pk=row_id).first()
        return Node(node_id, number.account, kind, number) if number is not None else None
    account = BusinessAccount.objects.for_environment(tenant_id, environment).filter(pk=row_id).first()
    return Node(node_id, account, kind) if account is not None else None


def _finding_node(node_id: str, *, tenant_id: UUID, environment: str) -> Statements[tuple[str, Any] | None]:
    """The kind of a tenant's node, with the key of its number or its account."""
    rows = yield _FIND_NODE, {"node_id": node_id, "tenant_id": tenant_id, "environment": environment}
    return (rows[0][1], rows[0][2]) if rows else None


def learn_nodes(account: BusinessAccount, edge: str | None, answer: Mapping[str, Any]) -> None:
    """Record the nodes in Meta's answer. `edge` is the called edge of an account or number. Without an edge, the answer
    is the account or number itself, and its members may be edges that the caller expanded.
    """
    lists = {edge: answer} if edge else {name: member(answer, name) for name in NAMED_BY}
    named = [
        Named(account.tenant_id, account.environment, node_id, NAMED_BY[name], account.waba_id)
        for name, rows in lists.items()
        if name in NAMED_BY
        for node_id in _ids_in(rows, name)
    ]
    if named:
        run(record_nodes(named))


def named_in(change: Change, *, tenant_id: UUID, environment: str, waba_id: str) -> Iterable[Named]:
    """The groups and flows that one change in a notification names."""
    value = change.value or {}
    if change.field == "flows":
        found = [("flow", value.get("flow_id"))]
    elif change.field.startswith("group_"):
        found = [("group", row.get("group_id")) for _, row in objects(value, "groups")]
    elif change.field == "messages":
        found = [("group", row["group_id"]) for _, row in objects(value, "messages") if "group_id" in row]
    else:
        return
    for kind, node_id in found:
        if isinstance(node_id, str) and NODE_ID.fullmatch(node_id):
            yield Named(tenant_id, environment, node_id, kind, waba_id)


def record_nodes(named: Collection[Named]) -> Statements[None]:
    """Yield the statement that records nodes. Without nodes, which is the usual case, yield nothing."""
    if named:
        yield _RECORD_NODES, [list(column) for column in zip(*sorted(set(named)), strict=True)]


def _ids_in(answer: Mapping[str, Any], edge: str) -> list[str]:
    """The id of a new object, or the ids in a list. Meta nests a list of groups in one more object."""
    rows = objects(answer, "data") or objects(member(answer, "data"), edge)
    ids = [answer.get("id"), *(row.get("id") for _, row in rows)]
    return [node_id for node_id in ids if isinstance(node_id, str) and NODE_ID.fullmatch(node_id)]


MEDIA_KEPT = timedelta(days=31)
"""How long records of media files are stored: a day longer than Meta stores any file (upstream fact 1.2)."""
SHORTEST_LIFE = timedelta(days=7)
"""The shortest time for which Meta stores a file: 7 days for received files, 30 for uploads (upstream fact 1.2)."""
MEDIA_TYPES = frozenset({"image", "video", "audio", "document", "sticker"})
MEDIA_ID = re.compile(r"[0-9]{1,64}", re.ASCII)

_RECORD_MEDIA = """
INSERT INTO messaging_knownmedia (tenant_id, environment, media_id, phone_number_id, noted_at)
SELECT tenant_id, environment, media_id, phone_number_id, now()
FROM unnest(%s::uuid[], %s::text[], %s::text[], %s::text[]) AS m (tenant_id, environment, media_id, phone_number_id)
ON CONFLICT DO NOTHING
"""
_RECORD_DELETION = """
INSERT INTO messaging_knownmedia (tenant_id, environment, media_id, phone_number_id, noted_at, deleted_at)
VALUES (%s, %s, %s, %s, now(), now())
ON CONFLICT (tenant_id, environment, media_id) DO UPDATE SET deleted_at = now()
"""


class Media(NamedTuple):
    """A media file and the number that it belongs to."""

    tenant_id: UUID
    environment: str
    media_id: str
    phone_number_id: str


def media_ids(change: Change) -> Iterable[str]:
    """The ids of media files in inbound messages, in messages sent from the WhatsApp Business app or by Meta's agent,
    in their edits, and in the responses of finished Flows.
    """
    for content in _contents(change.value or {}):
        found = [member(content, kind).get("id") for kind in MEDIA_TYPES & content.keys()]
        found += [text(file.get("id")) for file in _files_in(flow_response(content))]
        for media_id in found:
            if isinstance(media_id, str) and MEDIA_ID.fullmatch(media_id):
                yield media_id


def _files_in(response: Any) -> Iterator[JsonObject]:
    """The files that a customer attached in a Flow. The form of the Flow decides where they are in its response."""
    if isinstance(response, dict):
        if {"id", "mime_type", "sha256"} <= response.keys():
            yield response
        response = list(response.values())
    if isinstance(response, list):
        for each in response:
            yield from _files_in(each)


def _contents(value: JsonObject) -> Iterator[JsonObject]:
    """The objects that have the contents of messages. In an edit, and in an echo of Meta's agent, they are one level
    deeper.
    """
    for holder in (value, member(value, "standby")):
        for _, message in objects(holder, "messages") or objects(holder, "message_echoes"):
            yield from (message, member(message, "message"), member(member(message, "edit"), "message"))


def record_media(media: Sequence[Media]) -> Statements[None]:
    """Yield the statement that records media files. Without media files, which is the usual case, yield nothing."""
    if media:
        yield _RECORD_MEDIA, [list(column) for column in zip(*sorted(set(media)), strict=True)]


def record_media_deletion(media: Media) -> Statements[None]:
    """Yield the statement that records the deletion of a media file at Meta through this API."""
    yield _RECORD_DELETION, list(media)


def why_media_gone(*, tenant_id: UUID, environment: str, media_id: str) -> str:
    """The reason why Meta does not have a media file. It becomes `details.reason` of a 404."""
    rows = KnownMedia.objects.filter(tenant_id=tenant_id, environment=environment, media_id=media_id)
    media = rows.first()
    if media is None:
        return "media_unknown"
    if media.deleted_at is not None:
        return "media_deleted"
    return "media_expired" if media.noted_at < now() - SHORTEST_LIFE else "media_gone"


def number_of_media(*, tenant_id: UUID, environment: str, media_id: str) -> str | None:
    """The phone_number_id of a recorded media file. None when the file is not recorded."""
    rows = KnownMedia.objects.filter(tenant_id=tenant_id, environment=environment, media_id=media_id)
    return rows.values_list("phone_number_id", flat=True).first()


def prune_media() -> int:
    """Delete records of media files that Meta no longer stores. Returns the number of rows."""
    return delete_before(KnownMedia, "noted_at", MEDIA_KEPT)
