"""Client of the messaging gateway: send WhatsApp messages, read events, verify webhooks."""

from whabuzz.async_client import AsyncWhabuzz
from whabuzz.calls import API_VERSION, Page, Streamed
from whabuzz.client import Whabuzz
from whabuzz.errors import (
    APIError,
    BatchDiffers,
    Conflict,
    Forbidden,
    InvalidRequest,
    InvalidSignature,
    NoAnswer,
    NotFound,
    RateLimited,
    ServerError,
    StreamEnded,
    Unauthorized,
    Unprocessable,
    WhabuzzError,
)
from whabuzz.replies import Choice, choice_of
from whabuzz.webhooks import WebhookVerifier

__all__ = [
    "API_VERSION",
    "APIError",
    "AsyncWhabuzz",
    "BatchDiffers",
    "Choice",
    "Conflict",
    "Forbidden",
    "InvalidRequest",
    "InvalidSignature",
    "NoAnswer",
    "NotFound",
    "Page",
    "RateLimited",
    "ServerError",
    "StreamEnded",
    "Streamed",
    "Unauthorized",
    "Unprocessable",
    "WebhookVerifier",
    "Whabuzz",
    "WhabuzzError",
    "choice_of",
]
