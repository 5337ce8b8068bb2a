"""Tests of the staff's pages of all apps."""
