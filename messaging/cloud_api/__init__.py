"""The Cloud API front: the upstream's own paths at the root of the host, for software written against the Cloud API."""
