"""What an operator sees: logs, metrics, health figures, traces, error reports."""
