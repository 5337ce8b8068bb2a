"""Billing: a flat monthly price per number, tax invoices, autopay, restriction after late payment (docs/billing.md)."""
