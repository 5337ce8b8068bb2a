"""The pages of endpoints, events, deliveries and figures in the console."""
