"""Where events go besides HTTPS endpoints: queues, topics, exchanges and object stores. Each kind is a module."""
