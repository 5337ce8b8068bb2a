"""Tests of the staff's pages over all apps."""
