"""Log-in pages: password, second factor, passkey, and their recovery."""
