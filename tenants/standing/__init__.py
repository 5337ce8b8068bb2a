"""The standing of a tenant: approved, rejected, suspended, restricted for unpaid invoices."""
