"""Tests of the documentation: links, examples, references."""
