"""Where events go beside HTTPS: queues, topics, exchanges and object stores, each a module with one interface."""
