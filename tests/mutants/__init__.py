"""Mutants: realistic one-line mistakes, each of which some test must detect. `make mutants` applies them."""
