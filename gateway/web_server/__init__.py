"""Connections of the web processes: sockets with a minimum pace, and what waits on them."""
