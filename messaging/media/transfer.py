"""Describes, streams and deletes media files at the upstream. The service stores no file (specification 1).

A media file belongs to a number. The caller can name the number with `from`. Otherwise it is the number that received
or uploaded the file (`known_nodes.py`), else the number with the most recent customer message. A request for a file
that is not recorded names the number. So the upstream answers only for that number's files, even if the token has
access to more.
"""

import re
from http import HTTPStatus
from uuid import UUID

import structlog
from django.db.models import F
from django.http import HttpResponse, HttpResponseBase, StreamingHttpResponse

from gateway.api.attachments import attach
from gateway.api.errors import MetaUnreachable, NotFound
from gateway.database.statements import run
from gateway.database.transactions import error_fields, is_outage
from gateway.upstream.blocking_client import Stream
from gateway.upstream.calls import GraphAnswer, UpstreamUnreachable, Verdict, classify, passed_through
from gateway.upstream.media import MediaGraph, UnexpectedAddress
from messaging import known_nodes
from phone_numbers import tokens
from phone_numbers.models import PhoneNumber
from phone_numbers.senders_and_owners import Sender, is_within, required_sender, sender

NO_SUCH_OBJECT = (100, 33)
"""The upstream's code and subcode for a media file that it does not have, whatever the reason (upstream fact 1.2)."""
FORWARDED = (
    "Accept-Ranges",
    "Content-Length",
    "Content-Range",
    "ETag",
    "Last-Modified",
)
RANGE = re.compile(r"bytes=(?:[0-9]{1,15}-[0-9]{0,15}|-[0-9]{1,15})", re.ASCII)
"""A single range of bytes. Any other range is ignored: the answer is the whole file."""

Within = frozenset[str] | None
"""The numbers that the caller's key is limited to. None means all numbers of the tenant."""

log = structlog.get_logger(__name__)


class MediaNotThere(NotFound):
    """The upstream does not have this media file. `details.reason` is the reason as far as the service knows it."""

    def __init__(self, reason: str, upstream: object = None) -> None:
        message, hint = _NOT_THERE[reason]
        super().__init__(message, hint=hint, details={"reason": reason, "upstream_error": upstream})


_NOT_THERE = {
    "media_deleted": ("This media was deleted with this API.", "Upload the file again."),
    "media_expired": (
        "This media has expired: WhatsApp keeps received files for 7 days and uploads for 30.",
        "Fetch received files when their event arrives; upload files again.",
    ),
    "media_gone": (
        "WhatsApp no longer has this media, although it should not have expired.",
        "It was deleted elsewhere, or its number changed accounts. Upload the file again.",
    ),
    "media_unknown": (
        "No message brought this media id to you, and it was not uploaded here in the last 31 days.",
        "Check the id. For a file that was uploaded with other software, name the number with `from`.",
    ),
}
"""Message and hint for each reason."""


def info(
    *, tenant_id: UUID, environment: str, media_id: str, from_: str | None, within: Within = None
) -> HttpResponse:
    """The upstream's description of a media file, verbatim. Raises NotFound if the id is not that of a media file."""
    _, _, answer, verdict = _described(tenant_id, environment, media_id, from_, within)
    _require_media(answer, verdict)
    return passed_through(answer, verdict)


def delete(
    *, tenant_id: UUID, environment: str, media_id: str, from_: str | None, within: Within = None
) -> HttpResponse:
    """Delete a media file at the upstream. Returns the upstream's answer verbatim. Raises NotFound if the id is not
    that of a media file.

    The file is described before it is deleted. The upstream compares the number only for media files. So deletion
    without this check could delete any other object that the token has access to, even one of another tenant.
    """
    number, is_own, answer, verdict = _described(tenant_id, environment, media_id, from_, within)
    _require_media(answer, verdict)
    if verdict.ok:
        answer = graph_of(number).delete(media_id, is_own=is_own)
        verdict = verdict_of(number, answer)
    if verdict.ok:
        media = known_nodes.Media(tenant_id, environment, media_id, number.phone_number_id)
        try:
            run(known_nodes.record_media_deletion(media))
        except Exception as error:
            if not is_outage(error):
                raise
            # The file is deleted. Without the record, only the reason in a later 404 is less exact.
            log.warning("media_deletion_not_noted", **error_fields(error))
    return passed_through(answer, verdict)


def download(
    *,
    tenant_id: UUID,
    environment: str,
    media_id: str,
    from_: str | None,
    range_: str | None = None,
    within: Within = None,
) -> HttpResponseBase:
    """Stream the bytes of a media file, or a range of them, with the upstream's type and length. Raises NotFound and
    MetaUnreachable.

    The answer is an attachment with the upstream's file name. If the upstream's stream breaks off, the answer ends
    before its Content-Length.
    """
    number, _, answer, verdict = _described(tenant_id, environment, media_id, from_, within)
    if not verdict.ok:
        return passed_through(answer, verdict)
    url = answer.json().get("url")
    if not isinstance(url, str):
        raise NotFound("There is no such media.")
    asked = {"Range": range_} if range_ and RANGE.fullmatch(range_) else {}
    try:
        stream = graph_of(number).bytes_at(url, asked=asked)
        if stream.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            stream.close()
            stream = graph_of(number).bytes_at(url)
    except UnexpectedAddress:
        raise MetaUnreachable(details={"reason": "unexpected_address"}) from None
    if stream.status not in {HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT}:
        return _refused(stream)
    response = StreamingHttpResponse(
        stream,
        status=stream.status,
        content_type=stream.headers.get("Content-Type", "application/octet-stream"),
    )
    for header in FORWARDED:
        if header in stream.headers:
            response[header] = stream.headers[header]
    attach(response, stream.headers.get("Content-Disposition"))
    return response


def _require_media(answer: GraphAnswer, verdict: Verdict) -> None:
    if verdict.ok and "mime_type" not in answer.json():
        raise NotFound("There is no such media.")


def _described(
    tenant_id: UUID, environment: str, media_id: str, from_: str | None, within: Within
) -> tuple[Sender, bool, GraphAnswer, Verdict]:
    """The upstream's description of a media file, asked for the number in `from` or the file's recorded number.

    Returns that number, whether the file is recorded with it, the answer and its verdict.
    """
    if not known_nodes.MEDIA_ID.fullmatch(media_id):
        raise NotFound("There is no such media.")
    recorded = known_nodes.number_of_media(tenant_id=tenant_id, environment=environment, media_id=media_id)
    number = _number(tenant_id, environment, recorded, from_, within)
    is_own = number.phone_number_id == recorded
    answer = graph_of(number).info(media_id, is_own=is_own)
    verdict = verdict_of(number, answer)
    if not verdict.ok and _is_no_such_object(answer):
        reason = known_nodes.why_media_gone(tenant_id=tenant_id, environment=environment, media_id=media_id)
        raise MediaNotThere(reason, answer.json().get("error"))
    return number, is_own, answer, verdict


def _is_no_such_object(answer: GraphAnswer) -> bool:
    error = answer.json().get("error")
    return isinstance(error, dict) and (error.get("code"), error.get("error_subcode")) == NO_SUCH_OBJECT


def _number(
    tenant_id: UUID, environment: str, recorded: str | None, from_: str | None, within: Within
) -> Sender:
    if from_ is not None:
        return required_sender(
            tenant_id=tenant_id, environment=environment, from_=from_.strip(), within=within
        )
    number = sender(tenant_id=tenant_id, environment=environment, from_=recorded) if recorded else None
    if number is not None and not is_within(within, number):
        raise NotFound("There is no such media.")
    if number is None:
        numbers = PhoneNumber.objects.for_environment(tenant_id, environment)
        if within is not None:
            numbers = numbers.filter(phone_number_id__in=within)
        latest = numbers.order_by(F("last_event_at").desc(nulls_last=True), "-id")
        likely = latest.values_list("phone_number_id", flat=True).first()
        number = sender(tenant_id=tenant_id, environment=environment, from_=likely) if likely else None
    if number is None:
        raise NotFound("There is no such media: this tenant has no number.")
    return number


def graph_of(number: Sender) -> MediaGraph:
    """The Graph API's media calls with the token of a number."""
    return MediaGraph(number.environment, number.token, number.phone_number_id)


def verdict_of(number: Sender, answer: GraphAnswer) -> Verdict:
    """Classify an answer. Schedules a check of the number's token if the upstream rejected the token."""
    verdict = classify(answer)
    if verdict.token_problem:
        tokens.question(waba_id=number.waba_id, token=number.token)
    return verdict


def _refused(stream: Stream) -> HttpResponse:
    """The response when the file host sends no file. It is the host's own error, or a general error if the host's
    answer cannot be parsed.
    """
    try:
        body = next(iter(stream), b"")
    except UpstreamUnreachable:
        body = b""
    finally:
        stream.close()
    return passed_through(GraphAnswer(stream.status, body, stream.headers, 0.0))
