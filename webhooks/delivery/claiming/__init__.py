"""Claiming: which due deliveries a dispatcher takes, in each customer's order and at each endpoint's rate."""
