"""What messaging adds to the staff's search."""
