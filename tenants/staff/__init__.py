"""The base of the staff admin: site, roles, navigation, first page, search, approval."""
