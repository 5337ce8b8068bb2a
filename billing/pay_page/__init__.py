"""The page on which an invoice is paid, reached by a link in a mail."""
