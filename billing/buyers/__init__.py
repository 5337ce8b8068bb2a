"""Buyers: to whom an invoice is made out, and who sells."""
