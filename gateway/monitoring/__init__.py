"""Monitoring for operators: logs, metrics, health figures, traces, error reports."""
