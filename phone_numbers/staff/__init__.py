"""What phone numbers add to the staff's pages: dashboard cards and the search."""
