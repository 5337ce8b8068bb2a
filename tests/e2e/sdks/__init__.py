"""Tests of the SDKs and of the command line over HTTP."""
