"""Measurements of the service on one machine: `python -m benchmarks [NAME …]`, `make bench NAME=incoming`.

Each benchmark is a module with `run(harness) -> list[Result]`, listed in `benchmarks/__main__.py`. It brings up fresh
embedded servers and the processes it needs, runs its floor beside it, and fails on anything lost or doubled.
"""
