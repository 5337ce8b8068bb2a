"""The MCP server at `/mcp`: tools for AI agents, which are calls of `/v1` with the agent's own API key."""
