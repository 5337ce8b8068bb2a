"""Message templates: stored at Meta, mirrored here."""
