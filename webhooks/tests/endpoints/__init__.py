"""Tests of webhook endpoints: lifecycle, settings, custom headers, health, notices."""
