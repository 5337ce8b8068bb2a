"""Template filters: the meaning of an error of a ping, an example event or a delivery, and how to fix it."""

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
    "token_error": "your authorisation server gave no token",
    "response_too_large": "the headers of its answer are too large",
    "refused": "it refused the message",
    "event_too_large": "the event is larger than it accepts",
    "client_missing": "this service has no client for it",
    "wrong_answer": "it did not answer with the challenge",
    "payload_expired": "the content is past your retention",
    "endpoint_deleted": "the endpoint was deleted",
    "endpoint_disabled": "the endpoint was disabled",
    "waits_for_earlier_event": "an earlier event of the same customer has to be delivered first",
    "circuit_open": "the endpoint is failing, so its deliveries are held back",
    "secret_unreadable": "the signing secret cannot be read: create a new one",
    "egress_proxy_away": "a fault on our side; it is tried again",
}

REPAIRS = {
    "http_3xx": "Set the endpoint's URL to the address that your server redirects to.",
    "http_4xx": "Your server's answer says why. Often the URL's path is wrong, or your server refuses the signature.",
    "http_5xx": "Look at your server's log at the time of the attempt.",
    "timeout": "Let your server answer 2xx at once, and process the event afterwards.",
    "dns_error": "Check the name in the endpoint's URL.",
    "connection_error": "Check that your server runs and can be reached from the internet.",
    "tls_error": "Renew your server's certificate, with its whole chain.",
    "blocked_address": "Give the endpoint a URL that can be reached from the internet.",
    "token_error": "Check the token URL, the client id and its secret in the endpoint's settings.",
    "refused": "Its answer is below. Often a name in the settings is wrong, or the user may not write there.",
    "event_too_large": "Have the large event types sent to a webhook instead.",
    "response_too_large": "Let your server answer with fewer headers.",
    "wrong_answer": "Answer 2xx with the challenge of the ping alone, or as the member challenge of a JSON object.",
    "payload_expired": "It cannot be sent any more. A longer retention under Settings keeps the next events longer.",
    "endpoint_deleted": "Another endpoint can get the event: its page sends the events of a period again.",
    "endpoint_disabled": "Repair your server, then verify the endpoint.",
    "circuit_open": "Repair your server, then resume the endpoint: waiting deliveries are sent at once.",
    "secret_unreadable": "Create a new secret on the endpoint's page.",
}


@register.filter
def repair(error: str | None) -> str:
    """How to fix an error, as a sentence. Empty if the tenant cannot fix it."""
    return REPAIRS.get(error or "", "")


@register.filter
def in_words(error: str | None) -> str:
    """The meaning of an error as part of a sentence. The error itself if it has no label."""
    return WORDS.get(error or "", error or "")
