"""Tests of webhook endpoints: life, settings, custom headers, health, notices."""
