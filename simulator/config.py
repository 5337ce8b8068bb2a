"""Start-up configuration, read once from the environment by `python -m simulator`.

Settings that can change at run time (delays, throttling, review times) are in `settings.py`. App id and secret have
the same defaults as in the gateway's development settings, so both programs work together without configuration.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

APP_ID = "900100200300400"
APP_SECRET = "sim_app_secret_0123456789abcdef"
RAZORPAY_KEY_ID = "rzp_sim_gateway"
RAZORPAY_SECRET = "sim_razorpay_secret_0123456789"


@dataclass(slots=True)
class Config:
    """Where the simulator listens, where it sends notifications, and which app it plays."""

    host: str = "127.0.0.1"
    port: int = 8100
    base_url: str = "http://127.0.0.1:8100"
    state_file: Path | None = None
    callback_url: str = "http://127.0.0.1:8000/upstream/webhook"
    app_id: str = APP_ID
    app_secret: str = APP_SECRET
    payments_webhook_url: str | None = None
    control_token: str = ""
    """The token that the control API, the inboxes' settings and the pages require. If empty, none is required."""
    razorpay_key_id: str = RAZORPAY_KEY_ID
    razorpay_key_secret: str = RAZORPAY_SECRET
    razorpay_webhook_secret: str = RAZORPAY_SECRET

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> "Config":
        """Read every variable, or the file named in `NAME_FILE`. An empty value counts as absent."""

        def read(name: str, default: str) -> str:
            if path := environ.get(f"{name}_FILE"):
                return Path(path).read_text().rstrip("\r\n") or default
            return environ.get(name) or default

        port = int(read("SIMULATOR_PORT", "8100"))
        gateway = read("BASE_URL", f"http://127.0.0.1:{read('PORT', '8000')}").rstrip("/")
        state = environ.get("SIMULATOR_STATE")
        return cls(
            port=port,
            base_url=read("SIMULATOR_BASE_URL", f"http://127.0.0.1:{port}").rstrip("/"),
            state_file=Path(state) if state else None,
            callback_url=read("GATEWAY_CALLBACK_URL", f"{gateway}/upstream/webhook"),
            app_id=read("META_APP_ID", APP_ID),
            app_secret=read("META_APP_SECRET", APP_SECRET),
            payments_webhook_url=read("GATEWAY_PAYMENTS_URL", f"{gateway}/internal/razorpay/webhook"),
            control_token=read("SIMULATOR_CONTROL_TOKEN", ""),
            razorpay_key_id=read("RAZORPAY_KEY_ID", RAZORPAY_KEY_ID),
            razorpay_key_secret=read("RAZORPAY_KEY_SECRET", RAZORPAY_SECRET),
            razorpay_webhook_secret=read("RAZORPAY_WEBHOOK_SECRETS", RAZORPAY_SECRET).partition(",")[0],
        )
