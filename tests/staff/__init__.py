"""Tests of the staff pages of every app."""
