"""Tax invoices and credit notes: issued, numbered, printed, mailed, replaced."""
