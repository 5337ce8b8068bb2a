"""What webhooks add to the staff's pages: dashboard cards and the search."""
