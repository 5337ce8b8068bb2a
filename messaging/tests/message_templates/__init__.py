"""Tests of message templates."""
