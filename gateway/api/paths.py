"""Path converters of the API's URLs."""

from uuid import UUID

from django.urls.converters import register_converter


class AnyCaseUUID:
    """A uuid in upper or lower case. Django's own converter accepts only lower case."""

    regex = "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}"

    def to_python(self, value: str) -> UUID:
        return UUID(value)

    def to_url(self, value: object) -> str:
        return str(value)


register_converter(AnyCaseUUID, "id")
