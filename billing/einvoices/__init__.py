"""E-invoices: documents that are registered at the portal of the Indian GST."""
