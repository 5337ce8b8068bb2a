"""Bodies of message templates that Meta accepts."""

from typing import Any

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 64


def order_update(name: str = "order_update", **values: Any) -> dict[str, Any]:
    """A template with a header, two body parameters and a button with one parameter."""
    return {
        "name": name,
        "language": "en_US",
        "category": "UTILITY",
        "components": [
            {"type": "HEADER", "format": "TEXT", "text": "Your order"},
            {
                "type": "BODY",
                "text": "Hi {{1}}, your order {{2}} is on its way.",
                "example": {"body_text": [["Asha", "A-17"]]},
            },
            {
                "type": "BUTTONS",
                "buttons": [
                    {
                        "type": "URL",
                        "text": "Track",
                        "url": "https://shop.example/{{1}}",
                        "example": ["https://shop.example/A-17"],
                    }
                ],
            },
        ],
        **values,
    }


def numbered(index: int) -> dict[str, Any]:
    """A small template, for tests with many templates."""
    return {
        "name": f"numbered_{index}",
        "language": "en_US",
        "category": "UTILITY",
        "components": [{"type": "BODY", "text": "Your order is on its way."}],
    }


def login_code(name: str = "login_code") -> dict[str, Any]:
    """An authentication template with a button that copies its code."""
    return {
        "name": name,
        "language": "en_US",
        "category": "AUTHENTICATION",
        "components": [
            {"type": "BODY", "add_security_recommendation": True},
            {"type": "FOOTER", "code_expiration_minutes": 10},
            {"type": "BUTTONS", "buttons": [{"type": "OTP", "otp_type": "COPY_CODE", "text": "Copy code"}]},
        ],
    }
