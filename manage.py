#!/usr/bin/env python
"""Django's command line for the gateway."""

import os
import sys


def main() -> None:
    """Run a command. Exit if the settings do not load, because Django would run some commands without them."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")
    from django.conf import settings
    from django.core.exceptions import ImproperlyConfigured
    from django.core.management import execute_from_command_line

    try:
        settings.ENVIRONMENT  # noqa: B018 - the first access loads the settings
    except ImproperlyConfigured as error:
        sys.exit(str(error))
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
