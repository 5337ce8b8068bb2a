"""Sign-up: the form's checks, the confirmation of the address, and flags for the staff."""
