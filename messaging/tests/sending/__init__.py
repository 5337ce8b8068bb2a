"""Tests of sending one message."""
