"""The upstream's error codes in words: cause, repair, and the page where it is repaired (upstream fact 2.6)."""

from tenants.console.error_meanings import Meaning, explains

Page = tuple[str, str]
"""The text of a link, and its route's name."""

NUMBERS: Page = ("See the numbers", "console_numbers")
TEMPLATES: Page = ("See the templates", "console_templates")
SEND_TEMPLATE: Page = ("Send a template", "console_send")
BATCHES: Page = ("Make a batch", "console_csv_upload")

_DETAILS = "The answer's details name the parameter: correct it, and send the message again."
_LATER = "Send it again later."

_CODES: dict[int, tuple[str, str, Page | None]] = {
    1: (
        "The platform could not tell what went wrong.",
        "See what became of it before sending it again.",
        None,
    ),
    2: ("The platform had a fault for a moment.", "See what became of it before sending it again.", None),
    4: ("The platform's limit of calls is used up.", "Wait an hour, and read less often.", None),
    10: (
        "The account's token lacks a permission.",
        "Connect the number again and grant both permissions.",
        NUMBERS,
    ),
    33: (
        "The number or object does not exist on the platform any more.",
        "Connect the number again.",
        NUMBERS,
    ),
    100: ("A parameter is wrong.", _DETAILS, None),
    190: ("The token of the number's account is no longer taken.", "Connect the number again.", NUMBERS),
    368: (
        "The platform has blocked the account for a violation of its policies.",
        "Ask for a review in the platform's manager.",
        NUMBERS,
    ),
    80007: ("The account's limit of calls is used up.", "Wait an hour, and read less often.", None),
    130403: ("You have blocked this customer.", "Unblock the customer, and send it again.", None),
    130429: (
        "The number sent faster than its throughput.",
        "Use a batch: it keeps the pace by itself.",
        BATCHES,
    ),
    130472: (
        "The customer takes part in an experiment of the platform and gets no marketing messages.",
        "Do not send it again: it would fail in the same way.",
        None,
    ),
    130497: (
        "The account may not write to customers in this country.",
        "Reach this customer in another way.",
        None,
    ),
    131000: ("The platform had a fault.", "See what became of it before sending it again.", None),
    131005: (
        "The account's token lacks a permission.",
        "Connect the number again and grant both permissions.",
        NUMBERS,
    ),
    131008: ("A parameter is missing.", _DETAILS, None),
    131009: ("A parameter has a wrong value.", _DETAILS, None),
    131016: ("The platform was not available.", "See what became of it before sending it again.", None),
    131021: ("The number cannot write to itself.", "Send it to another number.", None),
    131026: (
        "The phone cannot get it: no WhatsApp on this number, an old version, or terms not accepted.",
        "Check the customer's number, and do not send it again at once.",
        None,
    ),
    131030: (
        "This number may only write to its list of test recipients.",
        "Add the recipient to the list in the platform's app, or send from a number that is not a test number.",
        NUMBERS,
    ),
    131031: ("The platform has locked the account.", "Ask for a review in the platform's manager.", NUMBERS),
    131037: (
        "The number's display name is not approved.",
        "Have the name approved in the platform's manager.",
        NUMBERS,
    ),
    131042: (
        "The business account has a payment problem on the platform.",
        "Repair its payment method in the platform's manager.",
        NUMBERS,
    ),
    131044: (
        "The business account has a payment problem on the platform.",
        "Repair its payment method in the platform's manager.",
        NUMBERS,
    ),
    131045: ("The number's registration is broken on the platform.", "Register the number again.", NUMBERS),
    131047: (
        "The customer has not written for more than 24 hours, so only a template can be sent.",
        "Use an approved template.",
        SEND_TEMPLATE,
    ),
    131048: (
        "Many customers blocked or reported the number, so the platform slows it down.",
        "Look at the number's quality, and send only what customers asked for.",
        NUMBERS,
    ),
    131049: (
        "The platform held it back so that the customer does not get too many marketing messages.",
        "Do not send it again at once: try tomorrow or later.",
        None,
    ),
    131050: (
        "The customer has stopped marketing messages from you.",
        "Send this customer no marketing.",
        None,
    ),
    131051: ("The platform does not know this type of message.", "Send a type that the guide names.", None),
    131052: ("The platform could not fetch the customer's file.", "Ask the customer to send it again.", None),
    131053: (
        "The platform could not fetch the file of the message.",
        "Check that its address opens without a log-in and that its type is right, or upload it first.",
        None,
    ),
    131055: ("This kind of message cannot go this way.", "Send it through POST /v1/messages.", None),
    131056: ("Too many messages went to this customer in a short time.", _LATER, None),
    131057: (
        "The platform was maintaining the number. Nothing was sent.",
        "Send it again in a minute.",
        None,
    ),
    131062: (
        "The platform takes a phone number here and no user id.",
        "Send it to the customer's number.",
        None,
    ),
    131063: (
        "The platform does not send marketing templates for this account.",
        "Use a utility template.",
        TEMPLATES,
    ),
    131064: (
        "The platform limits the account because templates were in a wrong category.",
        "Correct the categories of the templates.",
        TEMPLATES,
    ),
    132000: (
        "The template got another number of variables than it has.",
        "Give a value for each of its variables.",
        TEMPLATES,
    ),
    132001: (
        "The template does not exist in this language, or is not approved.",
        "Choose an approved language, or read the templates from the platform again.",
        TEMPLATES,
    ),
    132005: ("The filled-in text is longer than the template may be.", "Give shorter values.", TEMPLATES),
    132007: ("The template's text is against the platform's policy.", "Change its text.", TEMPLATES),
    132008: ("A variable of the template has a wrong value.", _DETAILS, TEMPLATES),
    132012: ("A variable of the template has a wrong form.", _DETAILS, TEMPLATES),
    132015: (
        "The template is paused because of its quality.",
        "Change its content, or wait until the pause ends.",
        TEMPLATES,
    ),
    132016: (
        "The template was disabled for good because of its quality.",
        "Make another template.",
        TEMPLATES,
    ),
    132018: ("A variable of the template is not valid.", _DETAILS, TEMPLATES),
    132068: ("The template's flow is blocked.", "Repair the flow in the platform's manager.", TEMPLATES),
    132069: ("The template's flow is slowed down by the platform.", _LATER, TEMPLATES),
    133004: ("The platform's server was busy.", _LATER, None),
    133005: ("The PIN is wrong.", "Set a new PIN in the platform's manager, then register with it.", NUMBERS),
    133010: ("The number is not registered.", "Register it with its PIN.", NUMBERS),
    133016: ("The number was registered too often.", "Wait 72 hours, then register it.", NUMBERS),
    135000: ("The platform refused it without a reason.", "Check the message against the guide.", None),
}


@explains
def of_code(code: str) -> Meaning | None:
    """What a code of the upstream means."""
    known = _CODES.get(int(code)) if code.isascii() and code.isdecimal() and len(code) < 10 else None
    if known is None:
        return None
    cause, fix, page = known
    return Meaning(code, cause, fix, *(page or (None, None)))
