"""Message templates of the Graph API (upstream fact 1.3) and the upload of their header samples (upstream fact 1.4).

One method for each call, which returns Meta's answer unchanged and retries nothing.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from gateway.upstream import blocking_client
from gateway.upstream.blocking_client import request
from gateway.upstream.calls import GraphAnswer, StreamedBody, platform, prepare

TEMPLATE_FIELDS = (
    "id",
    "name",
    "status",
    "category",
    "sub_category",
    "language",
    "components",
    "parameter_format",
    "previous_category",
    "correct_category",
    "rejected_reason",
    "quality_score",
    "message_send_ttl_seconds",
    "cta_url_link_tracking_opted_out",
    "library_template_name",
)
GONE = 33
"""The subcode of error 100 for an object that does not exist, or that the token may not see."""


@dataclass(frozen=True, slots=True)
class TemplateGraph:
    """The Graph API's templates with one account's token."""

    environment: str
    token: str = field(repr=False)

    def pages(self, waba_id: str) -> Iterator[GraphAnswer]:
        """`GET /{WABA}/message_templates` with every field, page by page, newest first."""
        return blocking_client.pages(
            environment=self.environment,
            token=self.token,
            path=f"{waba_id}/message_templates",
            fields=TEMPLATE_FIELDS,
        )

    def template(self, template_id: str) -> GraphAnswer:
        """`GET /{TEMPLATE}` with every field."""
        return blocking_client.read(
            environment=self.environment, token=self.token, path=template_id, fields=TEMPLATE_FIELDS
        )

    def create(self, waba_id: str, body: bytes) -> GraphAnswer:
        """`POST /{WABA}/message_templates` with the caller's own bytes."""
        return self._call("POST", f"{waba_id}/message_templates", body=body)

    def edit(self, template_id: str, body: bytes) -> GraphAnswer:
        """`POST /{TEMPLATE}` with the caller's own bytes."""
        return self._call("POST", template_id, body=body)

    def delete(self, waba_id: str, *, name: str, template_id: str | None) -> GraphAnswer:
        """`DELETE /{WABA}/message_templates`: one language (`hsm_id` and the name), or all languages of the name."""
        one = {"hsm_id": template_id} if template_id else {}
        return self._call("DELETE", f"{waba_id}/message_templates", params={**one, "name": name})

    def library(self, params: Mapping[str, str]) -> GraphAnswer:
        """`GET /message_template_library`: Meta's template library, the same for every account."""
        return self._call("GET", "message_template_library", params=params)

    def start_upload(self, *, name: str, length: int, mime_type: str) -> GraphAnswer:
        """`POST /{APP}/uploads`: an upload session for this many bytes. The answer's id is the session of
        `continue_upload`.
        """
        return self._call(
            "POST",
            f"{platform(self.environment).app_id}/uploads",
            params={"file_name": name, "file_length": str(length), "file_type": mime_type},
        )

    def upload_offset(self, session: str) -> GraphAnswer:
        """`GET /upload:…`: how many bytes of an interrupted upload have arrived, in the answer's `file_offset`."""
        return self._upload("GET", session, {})

    def continue_upload(self, session: str, rest: StreamedBody, *, offset: int) -> GraphAnswer:
        """`POST /upload:…`: the file from `offset` on, streamed. The answer's `h` is the handle."""
        return self._upload("POST", session, {"file_offset": str(offset)}, rest)

    def _upload(
        self, method: str, session: str, headers: Mapping[str, str], content: StreamedBody | None = None
    ) -> GraphAnswer:
        """A call on an upload session, with `OAuth` instead of `Bearer`. The session's id may end with a signature,
        which becomes part of the URL's query.
        """
        path, _, signature = session.partition("?")
        call = prepare(environment=self.environment, method=method, path=path, token=self.token)
        return blocking_client.send(
            replace(
                call,
                url=f"{call.url}&{signature}" if signature else call.url,
                headers={**call.headers, **headers, "Authorization": f"OAuth {self.token}"},
                body=content,
            )
        )

    def _call(
        self, method: str, path: str, *, params: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> GraphAnswer:
        return request(
            environment=self.environment,
            method=method,
            path=path,
            token=self.token,
            params=params,
            body=body,
        )
