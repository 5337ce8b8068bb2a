"""Template filter: the error of a ping, an example event or a delivery in words."""

from django import template

register = template.Library()

WORDS = {
    "http_3xx": "it redirects, and redirects are not followed",
    "http_4xx": "it refused the request",
    "http_5xx": "it failed while it worked on the request",
    "timeout": "it took too long to answer",
    "dns_error": "the name in the URL has no address",
    "connection_error": "no connection could be made, or it broke off",
    "tls_error": "it offers no HTTPS, or its certificate is not valid",
    "blocked_address": "the address is not a public one",
    "response_too_large": "the headers of its answer are too large",
    "wrong_answer": "it did not answer with the challenge",
    "payload_expired": "the content is past your retention",
    "endpoint_deleted": "the endpoint was deleted",
    "endpoint_disabled": "the endpoint was disabled",
    "endpoint_paused": "the endpoint is paused",
    "waits_for_earlier_event": "an earlier event of the same customer has to arrive first",
    "circuit_open": "the endpoint fails, so its deliveries are held back",
    "secret_unreadable": "the signing secret cannot be read: make a new one",
    "egress_proxy_away": "a fault on our side; it is tried again",
}


@register.filter
def in_words(error: str | None) -> str:
    """What an error means, inside of a sentence; the error itself when it has no words."""
    return WORDS.get(error or "", error or "")
