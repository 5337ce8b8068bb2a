"""Forms of conversations: a reply with a text or a file, and a template with its variables."""

from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from console.send import TemplateForm
from console.template_forms import approved_templates
from console.visit import Visit
from gateway.text_field import TextField
from messaging.media.uploads import media_type_of
from messaging.message_templates import parameters
from phone_numbers.models import PhoneNumber

_PICTURES = ("image/jpeg", "image/png")
"""Image types that WhatsApp accepts as pictures. Other images are sent as documents (upstream fact 1.2)."""
_WITHOUT_CAPTION = "audio"
MEGABYTE = 1024 * 1024
_LARGEST = {"image": 5 * MEGABYTE, "video": 16 * MEGABYTE, "audio": 16 * MEGABYTE, "document": 100 * MEGABYTE}
"""The maximum size of a file in bytes, by its kind (upstream fact 1.2)."""


class ReplyForm(forms.Form):
    """A reply: a text, or a file with a caption. It may quote a message."""

    text = TextField(
        label="Message",
        required=False,
        max_length=4096,
        widget=forms.Textarea(attrs={"rows": 2, "dir": "auto", "placeholder": "Write an answer"}),
    )
    file = forms.FileField(label="File", required=False)
    quote = forms.CharField(required=False, max_length=512, widget=forms.HiddenInput)

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        file = cleaned.get("file")
        if file is None:
            if not cleaned.get("text") and not self.errors:
                raise ValidationError("Type a message, or choose a file.")
            return cleaned
        kind = _kind(media_type_of(file))
        if file.size > _LARGEST[kind]:
            self.add_error(
                "file", f"WhatsApp takes at most {_LARGEST[kind] // MEGABYTE} MB for a file of this kind."
            )
        if kind == _WITHOUT_CAPTION and cleaned.get("text"):
            self.add_error("text", "A recording cannot have a text: send one after the other.")
        return cleaned

    def message(self, media_id: str | None) -> dict[str, Any]:
        """The message's members of `POST /v1/messages`, without sender and recipient."""
        values = self.cleaned_data
        quoted = {"context": {"message_id": values["quote"]}} if values["quote"] else {}
        if media_id is None:
            return {**quoted, "type": "text", "text": {"body": values["text"]}}
        kind = _kind(media_type_of(values["file"]))
        content = {"id": media_id}
        if values["text"]:
            content["caption"] = values["text"]
        if kind == "document":
            content["filename"] = values["file"].name
        return {**quoted, "type": kind, kind: content}


class TemplateReplyForm(TemplateForm):
    """A reply with a template of the number's account."""

    def __init__(self, *args: Any, number: PhoneNumber, visit: Visit, **kwargs: Any) -> None:
        own = approved_templates(visit).filter(account_id=number.account_id)
        super().__init__(*args, templates=own, **kwargs)
        self.fields["template"].required = True
        self.fields["template"].help_text = ""

    def message(self, media_id: str | None) -> dict[str, Any]:
        """The message's members of `POST /v1/messages`, without sender and recipient. `media_id` is ignored, because a
        template refers to its file by a link.
        """
        assert self.document is not None  # noqa: S101 - a valid form has a template
        return {"type": "template", "template": parameters.message(self.document, self.cleaned_data)}


def _kind(mime_type: str) -> str:
    """WhatsApp's message type for a file with this media type."""
    if mime_type in _PICTURES:
        return "image"
    main = mime_type.partition("/")[0]
    return main if main in {"video", "audio"} else "document"
