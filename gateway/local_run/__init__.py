"""`make run`: embedded Postgres and Valkey, and every process of the service under one supervisor."""
