"""The edge: a lean asynchronous process for the routes that must answer whatever the API's calls do."""
