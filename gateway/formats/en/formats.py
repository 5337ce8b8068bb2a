"""Date formats of the pages: day before month, 24 hours, the name of the time zone (setting FORMAT_MODULE_PATH)."""

DATETIME_FORMAT = "j M Y, H:i T"
DATE_FORMAT = "j M Y"
