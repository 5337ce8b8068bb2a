"""What billing adds to the pages of others, imported with the URLs: the console's frame and search, the staff's."""

from billing.console import entries, finders  # noqa: F401 - register their part of the console
from billing.pricing.money import rupees
from billing.staff import cards  # noqa: F401 - registers its part of the staff dashboard
from billing.staff import finders as staff_finders  # noqa: F401 - registers its part of the staff's search
from tenants.wording.audit_words import register_unit

register_unit("paise", rupees)
