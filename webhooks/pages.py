"""What webhooks add to the pages of others, imported with the URLs: the console's frame and search, the staff's."""

from webhooks.console import entries, figure_pages, finders  # noqa: F401 - register their part of the console
from webhooks.staff import businesses, cards  # noqa: F401 - register their part of the staff dashboard
from webhooks.staff import finders as staff_finders  # noqa: F401 - registers its part of the staff's search
