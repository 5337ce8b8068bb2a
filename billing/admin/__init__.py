"""Staff admin of billing: lists of its rows, and the actions that staff take on invoices and payments."""

from billing.admin import accounts, invoices, payments

__all__ = ["accounts", "invoices", "payments"]
