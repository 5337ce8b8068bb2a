"""The team of a business: invitations, roles, removal."""
