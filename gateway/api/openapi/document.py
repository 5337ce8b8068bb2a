"""`GET /v1/openapi.json` and `.yaml`: the document of the API, generated and rendered once in a process."""

from threading import Lock
from typing import Any, ClassVar

from drf_spectacular.renderers import OpenApiJsonRenderer, OpenApiJsonRenderer2, OpenApiYamlRenderer
from drf_spectacular.views import SpectacularJSONAPIView
from rest_framework.request import Request
from rest_framework.response import Response


class _WrittenOnce:
    """Renders the document once in a process, because rendering takes seconds of CPU. Renders other responses each
    time.
    """

    _lock: ClassVar[Lock] = Lock()
    _written: ClassVar[tuple[Any, Any]] = (None, None)
    """The document and its rendered form."""

    def render(self, data: Any, *args: Any, **kwargs: Any) -> Any:
        if data is not DocumentView._generated:
            return super().render(data, *args, **kwargs)  # type: ignore[misc]
        with self._lock:
            if self._written[0] is not data:
                type(self)._written = data, super().render(data, *args, **kwargs)  # type: ignore[misc]
            return self._written[1]


class _JsonRenderer(_WrittenOnce, OpenApiJsonRenderer):
    pass


class _PlainJsonRenderer(_WrittenOnce, OpenApiJsonRenderer2):
    pass


class DocumentView(SpectacularJSONAPIView):
    """The document, without authentication. A lock guards its generation, which takes seconds and is not thread-safe.

    All callers get the same document: nothing of the first request goes into it.
    """

    renderer_classes = [_JsonRenderer, _PlainJsonRenderer]
    authentication_classes = []
    permission_classes = []
    _lock: ClassVar[Lock] = Lock()
    _generated: ClassVar[Any] = None

    def _get_schema_response(self, request: Request) -> Response:
        with self._lock:
            if DocumentView._generated is None:
                DocumentView._generated = self.generator_class().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
        named = f'inline; filename="openapi.{request.accepted_renderer.format}"'
        return Response(DocumentView._generated, headers={"Content-Disposition": named})


class YamlRenderer(_WrittenOnce, OpenApiYamlRenderer):
    format = "yaml"


class YamlDocumentView(DocumentView):
    """The document as YAML."""

    renderer_classes = [YamlRenderer]
