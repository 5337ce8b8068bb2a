"""What billing adds to the staff's pages: dashboard cards and the search."""
