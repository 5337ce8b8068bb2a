"""Signals: how a dispatcher hears from Valkey that deliveries are due."""
