"""The service on Citus: `make citus` builds the extension and runs the flows on a coordinator and two workers."""
