"""Cells: several installations behind one address, each with its own tenants (docs/capacity.md)."""
