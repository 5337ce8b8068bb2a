"""Tests of connecting numbers."""
