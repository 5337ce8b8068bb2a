"""Tests of the contract over all routes: OpenAPI, authorisation, query parameters, paths."""
