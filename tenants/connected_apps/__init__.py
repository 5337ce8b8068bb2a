"""Connected apps: OAuth 2.1 for the MCP server, so that an AI assistant needs only its address to connect."""
