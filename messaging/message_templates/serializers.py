"""JSON bodies of the template routes, where they are not the upstream's own (docs/templates.md)."""

from typing import Any

from rest_framework import serializers


class TemplateOut(serializers.Serializer[Any]):
    """The upstream's template object as it was last heard of: these members, where it has them, and all others."""

    id = serializers.CharField()
    name = serializers.CharField()
    language = serializers.CharField(required=False)
    status = serializers.CharField(required=False)
    category = serializers.CharField(required=False)
    components = serializers.ListField(child=serializers.DictField(), required=False)


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
