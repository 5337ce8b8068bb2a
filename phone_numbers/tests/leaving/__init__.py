"""Tests of releasing numbers and closing tenants."""
