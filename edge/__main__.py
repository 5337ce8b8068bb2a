"""`python -m edge`: the edge process. Its database connections come from a pool (`DATABASE_POOL_SIZE`)."""

import argparse
import os


def main() -> None:
    """Serve until SIGTERM; requests in flight finish."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")
    import django
    from django.conf import settings

    parser = argparse.ArgumentParser(prog="python -m edge", description="The edge process.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=settings.EDGE_PORT, help="EDGE_PORT, PORT + 50")
    options = parser.parse_args()
    django.setup()

    from edge import server
    from edge.application import application
    from gateway import web_start
    from webhooks.delivery import process_limits

    process_limits.prepare()
    web_start.calm_collector()
    web_start.begin()
    server.Server(server.config(application, host=options.host, port=options.port)).run()


if __name__ == "__main__":
    main()
