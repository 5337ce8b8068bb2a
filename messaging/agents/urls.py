"""URL of the MCP server."""

from django.urls import path

from messaging.agents.views import mcp

urlpatterns = [path("mcp", mcp, name="mcp")]
