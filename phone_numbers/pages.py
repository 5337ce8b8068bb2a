"""What numbers add to the pages of others, imported with the URLs: the console's frame and search, the staff's."""

from phone_numbers.console import entries, finders  # noqa: F401 - register their part of the console
from phone_numbers.staff import cards  # noqa: F401 - registers its part of the staff dashboard
from phone_numbers.staff import finders as staff_finders  # noqa: F401 - registers its part of the staff's search
