"""Magic recipients and magic texts of the test world, as customers read of them; the simulator is what obeys them."""

from typing import NamedTuple


class Recipient(NamedTuple):
    """A number that shows one behaviour."""

    to: str
    behaviour: str
    code: int | None


class Text(NamedTuple):
    """A last line of a message that shows one behaviour."""

    text: str
    behaviour: str


RECIPIENTS = (
    Recipient(
        "+919800000100", "Accepted, then `sent`, `delivered` and `read`; so is every other number.", None
    ),
    Recipient("+919800000001", "Delivered, but never read.", None),
    Recipient("+919800000008", "Accepted; its statuses come ten seconds late.", None),
    Recipient("+919800000026", "Accepted, then `failed`: the message cannot be delivered.", 131026),
    Recipient(
        "+919800000047", "Accepted, then `failed`: more than 24 hours since the customer wrote.", 131047
    ),
    Recipient("+919800000050", "Accepted, then `failed`: the customer stopped marketing messages.", 131050),
    Recipient("+919800000030", "Refused: the recipient is not in the allowed list.", 131030),
    Recipient("+919800000015", "Refused: the template is paused.", 132015),
    Recipient("+919800000429", "Refused: throttled; 429 with `Retry-After`.", 130429),
)
TEXTS = (
    Text("#reply Thank you", "The customer answers with this text."),
    Text("#image", "The customer answers with a picture."),
    Text("#video", "The customer answers with a video."),
    Text("#audio", "The customer answers with a voice message."),
    Text("#document", "The customer answers with a PDF."),
    Text("#sticker", "The customer answers with a sticker."),
    Text("#location", "The customer answers with a location."),
    Text("#contacts", "The customer answers with a contact card."),
    Text("#order", "The customer answers with an order."),
    Text("#react 👍", "The customer reacts to the message."),
    Text("#tap 2", "The customer chooses the second button or list row; without a number the first."),
    Text("#edit", "The customer writes a message and corrects it."),
    Text("#delete", "The customer writes a message and deletes it."),
    Text("#unread", "Delivered, but never read."),
    Text("#silent", "Accepted; no status ever comes."),
    Text("#late 30", "Its statuses come 30 seconds late; at most 600."),
    Text("#fail 131049", "Accepted, then `failed` with this code."),
    Text("#refuse 131031", "Refused with this code."),
)
