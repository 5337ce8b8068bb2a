"""Date formats of the pages: day before month, 24 hours, UTC (setting FORMAT_MODULE_PATH)."""

DATETIME_FORMAT = r"j M Y, H:i \U\T\C"
DATE_FORMAT = "j M Y"
