"""Device log-in: a program without a browser gets an API key that a person confirms."""
