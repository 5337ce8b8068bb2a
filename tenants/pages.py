"""What tenants add to the console's frame and search, and to the staff's search; imported with the URLs."""

from tenants.console import (
    entries,  # noqa: F401 - registers its pages and first steps
    search,  # noqa: F401 - registers its part of the search
)
from tenants.staff import finders  # noqa: F401 - registers its part of the staff's search
