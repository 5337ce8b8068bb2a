"""Measurements of the service on one machine: `python -m benchmarks [NAME …]`, `make bench NAME=incoming`.

Each benchmark is a module with `run(harness) -> list[Result]`, listed in `benchmarks/__main__.py`. It starts fresh
embedded servers and the processes that it needs. It measures its floor, a minimal program for comparison, in the same
run. It fails if anything is lost or duplicated.
"""
