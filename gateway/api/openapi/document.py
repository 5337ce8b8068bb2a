"""`GET /v1/openapi.json` and `.yaml`: the document of the API, generated once in a process."""

from threading import Lock
from typing import Any, ClassVar

from drf_spectacular.renderers import OpenApiYamlRenderer
from drf_spectacular.views import SpectacularJSONAPIView
from rest_framework.request import Request
from rest_framework.response import Response


class DocumentView(SpectacularJSONAPIView):
    """The document. Anybody may ask; generating it takes seconds of CPU, and fails in two threads at its first time."""

    authentication_classes = []
    permission_classes = []
    _lock: ClassVar[Lock] = Lock()
    _generated: ClassVar[tuple[Any, dict[str, str]] | None] = None

    def _get_schema_response(self, request: Request) -> Response:
        with self._lock:
            generated = self._generated
            if generated is None:
                response: Response = super()._get_schema_response(request)  # type: ignore[no-untyped-call]
                generated = type(self)._generated = response.data, dict(response.items())
        data, headers = generated
        return Response(data, headers=headers)


class YamlRenderer(OpenApiYamlRenderer):
    """Writes the document once in a process: that takes seconds, too."""

    _lock: ClassVar[Lock] = Lock()
    _written: ClassVar[Any] = None

    def render(self, data: Any, *args: Any, **kwargs: Any) -> Any:
        with self._lock:
            if self._written is None:
                type(self)._written = super().render(data, *args, **kwargs)  # type: ignore[no-untyped-call]
            return self._written


class YamlDocumentView(DocumentView):
    """The same as YAML."""

    renderer_classes = [YamlRenderer]
