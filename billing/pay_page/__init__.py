"""The page on which an invoice is paid. Mails link to it."""
