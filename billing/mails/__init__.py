"""The mails of billing."""
