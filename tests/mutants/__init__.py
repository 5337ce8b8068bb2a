"""Mutants: realistic one-line mistakes, each of which some test must notice. `make mutants` applies them."""
