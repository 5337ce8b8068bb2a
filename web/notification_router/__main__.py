"""`python -m web.notification_router`: the process of the router. Run two of them; they share nothing.

python -m web.notification_router --port 8060 --default a --cell a=http://… --cell b=http://… ROUTES
"""

import argparse
import os
from pathlib import Path


def main() -> None:
    """Serve until SIGTERM, then answer the notifications in flight."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")
    import django

    parser = argparse.ArgumentParser(
        prog="python -m web.notification_router", description="The notification router."
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--cell", action="append", required=True, metavar="NAME=URL")
    parser.add_argument("--default", required=True, help="the cell that gets what no cell has an account of")
    parser.add_argument("routes", type=Path, help="the directory that `manage.py cell_routes` writes to")
    options = parser.parse_args()
    cells = dict(each.split("=", 1) for each in options.cell)
    if options.default not in cells:
        parser.error("--default names none of the --cell options")
    django.setup()

    from gateway import process_limits
    from web import listener
    from web.notification_router.application import Router, RoutingTable

    process_limits.raise_open_files()
    process_limits.calm_collector()
    router = Router(RoutingTable(options.routes, cells, default=options.default))
    listener.Server(listener.config(router, host=options.host, port=options.port)).run()


if __name__ == "__main__":
    main()
