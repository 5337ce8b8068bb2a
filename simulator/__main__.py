"""`python -m simulator [--host H] [--port P] [--state FILE]`: serve until SIGTERM or SIGINT, then save the
state.
"""

import argparse
import logging
from pathlib import Path

from aiohttp import web

from simulator.app import make_app
from simulator.config import Config

_STOP_SECONDS = 0.5


def main() -> None:
    """Read the configuration, serve, stop gracefully."""
    config = Config.from_environment()
    parser = argparse.ArgumentParser(
        prog="python -m simulator", description="A local simulator of the WhatsApp Cloud API."
    )
    parser.add_argument("--host", default=config.host)
    parser.add_argument("--port", type=int, default=config.port, help="SIMULATOR_PORT, 8100")
    parser.add_argument(
        "--state", type=Path, default=config.state_file, help="SIMULATOR_STATE: file to keep the state in"
    )
    options = parser.parse_args()
    if options.port != config.port and config.base_url == f"http://127.0.0.1:{config.port}":
        config.base_url = f"http://127.0.0.1:{options.port}"
    config.host, config.port, config.state_file = options.host, options.port, options.state
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger(__name__).info(
        "simulator on %s, notifications to %s", config.base_url, config.callback_url
    )
    web.run_app(
        make_app(config),
        host=config.host,
        port=config.port,
        access_log=None,
        print=None,
        shutdown_timeout=_STOP_SECONDS,
        handler_cancellation=False,
    )


if __name__ == "__main__":
    main()
