"""`GET /v1/openapi.json` and `.yaml`: the document of the API, generated once in a process."""

from threading import Lock
from typing import Any, ClassVar

from drf_spectacular.renderers import OpenApiYamlRenderer
from drf_spectacular.views import SpectacularJSONAPIView
from rest_framework.request import Request
from rest_framework.response import Response


class DocumentView(SpectacularJSONAPIView):
    """The document. Anybody may ask; generating it takes seconds of CPU, and fails in two threads at its first time.

    It is the same for everybody: nothing of the request that happens to be the first goes into it.
    """

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


class YamlRenderer(OpenApiYamlRenderer):
    """Writes the document once in a process: that takes seconds, too. Other answers are written each time."""

    format = "yaml"
    _lock: ClassVar[Lock] = Lock()
    _written: ClassVar[Any] = None

    def render(self, data: Any, *args: Any, **kwargs: Any) -> Any:
        if data is not DocumentView._generated:
            return super().render(data, *args, **kwargs)  # type: ignore[no-untyped-call]
        with self._lock:
            if self._written is None:
                type(self)._written = super().render(data, *args, **kwargs)  # type: ignore[no-untyped-call]
            return self._written


class YamlDocumentView(DocumentView):
    """The same as YAML."""

    renderer_classes = [YamlRenderer]
