"""What goes over the wire for templates, where it is not the upstream's own (docs/templates.md)."""

from typing import Any

from drf_spectacular.utils import inline_serializer
from rest_framework import serializers

TemplateListOut = inline_serializer(
    "TemplateList",
    {
        "data": serializers.ListField(
            child=serializers.DictField(), help_text="The upstream's template objects, newest first."
        ),
        "next_cursor": serializers.CharField(allow_null=True),
    },
)


class SyncOut(serializers.Serializer[Any]):
    synced = serializers.IntegerField(help_text="Templates that the upstream has.")
    added = serializers.IntegerField()
    updated = serializers.IntegerField()
    removed = serializers.IntegerField()
    failed = serializers.ListField(
        child=serializers.CharField(),
        required=False,
        help_text="Business accounts that could not be read; only there when some could not.",
    )


class SampleIn(serializers.Serializer[Any]):
    file = serializers.FileField()
    type = serializers.CharField(required=False, help_text="The media type, when the file part names none.")
    waba_id = serializers.CharField(required=False)
