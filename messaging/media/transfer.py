"""Media: files up to the upstream and down from it, streamed through; the service keeps none (specification 1).

Media belongs to a number. Without `from`, the tenant's numbers are asked one after the other, the one that heard from
a customer last first; which one it was is remembered. A number's id goes with every question, so the upstream answers
for that number's media alone, and nobody reaches another's through a token that opens more.
"""

import re
from collections.abc import Callable
from uuid import UUID

from django.core.cache import cache
from django.db.models import F
from django.http import HttpResponse, HttpResponseBase, StreamingHttpResponse
from requests import RequestException

from gateway.api.errors import MetaUnreachable, NotFound
from gateway.upstream.client import GraphAnswer, Stream
from gateway.upstream.errors import Verdict, judge, passed_through
from gateway.upstream.media import MediaGraph, UnexpectedAddress
from messaging.uploads import Upload
from phone_numbers import tokens
from phone_numbers.lookup import Sender, required_sender, sender
from phone_numbers.models import PhoneNumber

NUMBERS_ASKED = 20
REMEMBERED_SECONDS = 7 * 86_400
NO_OBJECT = (100, 33)
"""Code and subcode for what does not exist, or not for this number."""
FORWARDED = ("Content-Length", "Content-Disposition", "ETag", "Last-Modified")

_MEDIA_ID = re.compile(r"[0-9]{1,64}", re.ASCII)


def upload(number: Sender, file: Upload) -> HttpResponse:
    """Send a file to the upstream; its answer, verbatim. Raises UpstreamUnreachable."""
    answer = _graph(number).upload(file.content, length=file.length, name=file.name, mime_type=file.mime_type)
    return passed_through(answer, _judged(number, answer))


def info(*, tenant_id: UUID, environment: str, media_id: str, from_: str | None) -> HttpResponse:
    """The upstream's description of a media, verbatim."""
    _, answer, verdict = _ask(tenant_id, environment, media_id, from_, lambda graph: graph.info(media_id))
    return passed_through(answer, verdict)


def delete(*, tenant_id: UUID, environment: str, media_id: str, from_: str | None) -> HttpResponse:
    """Delete a media upstream; its answer, verbatim."""
    _, answer, verdict = _ask(tenant_id, environment, media_id, from_, lambda graph: graph.delete(media_id))
    return passed_through(answer, verdict)


def download(*, tenant_id: UUID, environment: str, media_id: str, from_: str | None) -> HttpResponseBase:
    """The bytes of a media as they arrive, with the upstream's type, length and name.

    When the upstream breaks off, so does the answer: it is shorter than its Content-Length.
    """
    number, answer, verdict = _ask(
        tenant_id, environment, media_id, from_, lambda graph: graph.info(media_id)
    )
    if not verdict.ok:
        return passed_through(answer, verdict)
    url = answer.json().get("url")
    if not isinstance(url, str):
        raise NotFound("There is no such media.")
    try:
        stream = _graph(number).bytes_at(url)
    except UnexpectedAddress:
        raise MetaUnreachable(details={"reason": "unexpected_address"}) from None
    if stream.status != 200:
        return _refused(stream)
    response = StreamingHttpResponse(
        stream, content_type=stream.headers.get("Content-Type", "application/octet-stream")
    )
    for header in FORWARDED:
        if header in stream.headers:
            response[header] = stream.headers[header]
    return response


def _ask(
    tenant_id: UUID,
    environment: str,
    media_id: str,
    from_: str | None,
    question: Callable[[MediaGraph], GraphAnswer],
) -> tuple[Sender, GraphAnswer, Verdict]:
    """Ask the numbers for a media until one has it; else what the last one was told."""
    if not _MEDIA_ID.fullmatch(media_id):
        raise NotFound("There is no such media.")
    numbers = _numbers(tenant_id, environment, media_id, from_)
    told: tuple[Sender, GraphAnswer, Verdict] | None = None
    for number in numbers:
        answer = question(_graph(number))
        verdict = _judged(number, answer)
        told = number, answer, verdict
        if verdict.ok:
            cache.set(_key(tenant_id, media_id), number.phone_number_id, REMEMBERED_SECONDS)
        if verdict.ok or not (_no_object(answer) or verdict.token_problem):
            break
    if told is None:
        raise NotFound("There is no such media: this tenant has no number.")
    return told


def _numbers(tenant_id: UUID, environment: str, media_id: str, from_: str | None) -> list[Sender]:
    if from_ is not None:
        return [required_sender(tenant_id=tenant_id, environment=environment, from_=from_.strip())]
    known = cache.get(_key(tenant_id, media_id))
    own = list(
        PhoneNumber.objects.for_tenant(tenant_id)
        .filter(environment=environment)
        .order_by(F("last_event_at").desc(nulls_last=True), "-id")
        .values_list("phone_number_id", flat=True)[:NUMBERS_ASKED]
    )
    ordered = sorted(own, key=lambda phone_number_id: phone_number_id != known)
    found = (
        sender(tenant_id=tenant_id, environment=environment, from_=phone_number_id)
        for phone_number_id in ordered
    )
    return [number for number in found if number is not None]


def _graph(number: Sender) -> MediaGraph:
    return MediaGraph(number.environment, number.token, number.phone_number_id)


def _judged(number: Sender, answer: GraphAnswer) -> Verdict:
    verdict = judge(answer)
    if verdict.token_problem:
        tokens.question(waba_id=number.waba_id, token=number.token)
    return verdict


def _no_object(answer: GraphAnswer) -> bool:
    error = answer.json().get("error")
    return isinstance(error, dict) and (error.get("code"), error.get("error_subcode")) == NO_OBJECT


def _refused(stream: Stream) -> HttpResponse:
    """What the file host answers instead of the bytes: an error of the upstream's, or none that can be read."""
    try:
        body = next(iter(stream), b"")
    except RequestException:
        body = b""
    finally:
        stream.close()
    return passed_through(GraphAnswer(stream.status, body, stream.headers, 0.0))


def _key(tenant_id: UUID, media_id: str) -> str:
    return f"media:{tenant_id}:{media_id}"
