"""`/mcp` of the running service, called over HTTP with the official client."""

import httpx2
import pytest

from tests.e2e.conftest import Stack

pytestmark = pytest.mark.e2e


async def test_an_agent_sends_a_message_and_reads_the_guides(stack: Stack) -> None:
    from mcp.client import Client
    from mcp.client.streamable_http import streamable_http_client

    headers = {"Authorization": f"Bearer {stack.ready['api_key']}"}
    async with httpx2.AsyncClient(headers=headers, timeout=30) as http:
        transport = streamable_http_client(f"{stack.ready['base_url']}/mcp", http_client=http)
        async with Client(transport) as client:
            sent = await client.call_tool(
                "send_message",
                {
                    "to": ["+917000910001"],
                    "from": stack.ready["phone_number_id"],
                    "message": {"type": "text", "text": {"body": "Hello from an agent"}},
                    "idempotency_key": "agents-1",
                },
            )
            assert not sent.is_error, sent.content
            wamid = sent.structured_content["answer"]["messages"][0]["id"]
            found = await client.call_tool("get_message", {"message_id": wamid})
            assert found.structured_content["request"]["text"] == {"body": "Hello from an agent"}
            guides = {resource.uri for resource in (await client.list_resources()).resources}
            assert "guide:///sending" in guides
            read = await client.read_resource("guide:///sending")
            assert "Idempotency-Key" in read.contents[0].text
            answer = await client.call_tool("search_docs", {"question": "verify the webhook signature"})
            assert any(each["guide"] == "guide:///webhooks" for each in answer.structured_content["sections"])
