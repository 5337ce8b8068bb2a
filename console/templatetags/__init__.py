"""Template tags of the console and of mails."""
