"""The command line `whabuzz`: log in, send, listen to events on a laptop, look things up, send batches from a file."""
