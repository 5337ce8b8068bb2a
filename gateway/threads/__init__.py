"""Threads of a process: group commit, debounce, and the thread of an event loop."""
