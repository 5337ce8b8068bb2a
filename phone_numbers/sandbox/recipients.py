"""Magic recipients of the test world: what becomes of a message by the last four digits of its recipient."""

from typing import NamedTuple


class Recipient(NamedTuple):
    """A number that shows one behaviour."""

    to: str
    behaviour: str
    code: int | None


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
