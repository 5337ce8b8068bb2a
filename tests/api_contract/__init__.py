"""Tests of the API's contract over all routes: OpenAPI, authorisation, query parameters, paths."""
