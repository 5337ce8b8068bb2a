"""Meta's library of ready-made templates: a dozen entries with the members of upstream fact 1.3."""

from typing import Any


def _entry(
    number: int, name: str, category: str, topic: str, usecase: str, body: str, types: list[str], **more: Any
) -> dict[str, Any]:
    return {
        "id": str(790000000000000 + number),
        "name": name,
        "language": "en_US",
        "category": category,
        "topic": topic,
        "usecase": usecase,
        "industry": more.get("industry", ["E_COMMERCE"]),
        **({"header": more["header"]} if "header" in more else {}),
        "body": body,
        "body_params": more.get("params", []),
        "body_param_types": types,
        "buttons": more.get("buttons", []),
    }


_TRACK = [{"type": "URL", "text": "Track order", "url": "https://www.example.com/{{1}}"}]
_CALL = [{"type": "PHONE_NUMBER", "text": "Call us", "phone_number": "+16505551234"}]

LIBRARY: list[dict[str, Any]] = [
    _entry(1, "order_confirmation_1", "UTILITY", "ORDER_MANAGEMENT", "ORDER_CONFIRMATION",
           "Hi {{1}}, thank you for your order {{2}}. We will tell you when it is on its way.", ["TEXT", "TEXT"],
           params=["Asha", "A-17"], buttons=_TRACK, header="Order confirmed"),
    _entry(2, "shipment_confirmation_1", "UTILITY", "ORDER_MANAGEMENT", "SHIPMENT_CONFIRMATION",
           "Hi {{1}}, your order {{2}} has left our warehouse and arrives by {{3}} at the latest.",
           ["TEXT", "TEXT", "DATE"], params=["Asha", "A-17", "1 Nov"], buttons=_TRACK),
    _entry(3, "delivery_update_1", "UTILITY", "ORDER_MANAGEMENT", "DELIVERY_UPDATE",
           "Your order {{1}} is out for delivery and will reach you today.", ["TEXT"], params=["A-17"]),
    _entry(4, "delivery_failed_1", "UTILITY", "ORDER_MANAGEMENT", "DELIVERY_FAILED",
           "We could not deliver order {{1}} today. We will try again on {{2}} for sure.", ["TEXT", "DATE"],
           params=["A-17", "2 Nov"], buttons=_CALL),
    _entry(5, "order_cancelled_1", "UTILITY", "ORDER_MANAGEMENT", "ORDER_OR_TRANSACTION_CANCEL",
           "Your order {{1}} was cancelled and {{2}} will be refunded within a week.", ["TEXT", "AMOUNT"],
           params=["A-17", "₹1,200"]),
    _entry(6, "payment_received_1", "UTILITY", "PAYMENTS", "PAYMENT_CONFIRMATION",
           "We received your payment of {{1}} for invoice {{2}}, thank you.", ["AMOUNT", "TEXT"],
           params=["₹1,200", "INV-9"], industry=["FINANCIAL_SERVICES"]),
    _entry(7, "payment_due_reminder_1", "UTILITY", "PAYMENTS", "PAYMENT_DUE_REMINDER",
           "Hi {{1}}, your payment of {{2}} is due on {{3}} as agreed.", ["TEXT", "AMOUNT", "DATE"],
           params=["Asha", "₹1,200", "5 Nov"], industry=["FINANCIAL_SERVICES"]),
    _entry(8, "low_balance_warning_1", "UTILITY", "ACCOUNT_UPDATES", "LOW_BALANCE_WARNING",
           "The balance of your account ending in {{1}} is below {{2}} now.", ["TEXT", "AMOUNT"],
           params=["1234", "₹500"], industry=["FINANCIAL_SERVICES"]),
    _entry(9, "appointment_reminder_1", "UTILITY", "EVENT_REMINDER", "APPOINTMENT_REMINDER",
           "Hi {{1}}, we expect you on {{2}} at our clinic.", ["TEXT", "DATE"], params=["Asha", "3 Nov"],
           industry=["HEALTH"], buttons=_CALL),
    _entry(10, "feedback_survey_1", "UTILITY", "CUSTOMER_FEEDBACK", "FEEDBACK_SURVEY",
           "Hi {{1}}, how was your visit? Tell us in one minute.", ["TEXT"], params=["Asha"],
           buttons=[{"type": "URL", "text": "Answer", "url": "https://www.example.com/{{1}}"}]),
    _entry(11, "verify_code_1", "AUTHENTICATION", "IDENTITY_VERIFICATION", "AUTHENTICATION",
           "*{{1}}* is your verification code. For your security, do not share this code.", ["TEXT"],
           params=["482913"], buttons=[{"type": "OTP", "otp_type": "COPY_CODE", "text": "Copy code"}]),
    _entry(12, "fraud_alert_1", "UTILITY", "ACCOUNT_UPDATES", "FRAUD_ALERT",
           "We noticed a payment of {{1}} that is unusual for you. Was it you?", ["AMOUNT"], params=["₹9,000"],
           buttons=[{"type": "QUICK_REPLY", "text": "Yes"}, {"type": "QUICK_REPLY", "text": "No"}]),
]  # fmt: skip


def search(query: dict[str, str]) -> list[dict[str, Any]]:
    """Entries that match all of `search`, `name`, `topic`, `usecase`, `industry`, `language` and `category`."""

    def fits(entry: dict[str, Any]) -> bool:
        for name in ("topic", "usecase", "category"):
            if query.get(name) and entry[name] != query[name].upper():
                return False
        if query.get("name") and entry["name"] != query["name"]:
            return False
        if query.get("language") and not entry["language"].startswith(query["language"][:2]):
            return False
        if query.get("industry") and query["industry"].upper() not in entry["industry"]:
            return False
        wanted = query.get("search", "").lower()
        return wanted in entry["name"] or wanted in str(entry["body"]).lower()

    return [entry for entry in LIBRARY if fits(entry)]


def by_name(name: str) -> dict[str, Any] | None:
    """The library entry with that name."""
    return next((entry for entry in LIBRARY if entry["name"] == name), None)
