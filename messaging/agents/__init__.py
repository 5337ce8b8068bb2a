"""The MCP server at `/mcp`: tools for AI agents. Each tool calls `/v1` with the agent's own credentials."""
