"""What messaging adds to the pages of others, imported with the URLs: the console's frame and search, the staff's."""

from messaging.console import (
    entries,  # noqa: F401 - registers its pages and first steps
    finders,  # noqa: F401 - registers its part of the search
    upstream_codes,  # noqa: F401 - explains the upstream's codes
)
from messaging.staff import finders as staff_finders  # noqa: F401 - registers its part of the staff's search
