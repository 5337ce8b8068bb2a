"""Tests of what operators use: chart, compose file, monitoring files, key rotation."""
