"""Sign-up: the checks of the form, the confirmation of the address, and flags for reviewers."""
