"""Tests of all console pages: who may see them, accessibility, search."""
