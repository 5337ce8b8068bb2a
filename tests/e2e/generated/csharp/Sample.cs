// The calls of a client that OpenAPI Generator makes for C#.
using System;
using System.Collections.Generic;
using Gateway.Api;
using Gateway.Client;
using Gateway.Model;
using Newtonsoft.Json;

public static class Sample
{
    public static void Main()
    {
        var configuration = new Configuration
        {
            BasePath = Environment.GetEnvironmentVariable("BASE_URL"),
            AccessToken = Environment.GetEnvironmentVariable("API_KEY"),
        };

        var messages = new MessagesApi(configuration);
        var text = new TextMessage(
            from: Environment.GetEnvironmentVariable("FROM"),
            to: Environment.GetEnvironmentVariable("CUSTOMER"),
            type: TextMessage.TypeEnum.Text,
            text: new TextContent(body: "Hello"));
        var key = Environment.GetEnvironmentVariable("KEY");
        var sent = messages.SendMessage(new OutgoingMessage(text), key);
        var repeated = messages.SendMessage(new OutgoingMessage(text), key);

        var refused = 0;
        try
        {
            text.From = "nobody";
            messages.SendMessage(new OutgoingMessage(text));
        }
        catch (ApiException error)
        {
            refused = error.ErrorCode;
        }

        var events = new EventsApi(configuration);
        var first = events.ListEvents(limit: 1);
        var next = events.ListEvents(limit: 1, cursor: first.NextCursor);

        var inbound = Event.FromJson(Environment.GetEnvironmentVariable("EVENT")).GetMessageInboundEvent();
        var received = inbound.Data.Message.GetInboundTextMessage();

        Console.WriteLine(JsonConvert.SerializeObject(new Dictionary<string, object>
        {
            ["wamid"] = sent.Messages[0].Id,
            ["repeated"] = repeated.Messages[0].Id,
            ["refused"] = refused,
            ["events"] = new[] { first.Data[0].Id, next.Data[0].Id },
            ["received"] = received.Text.Body,
        }));
    }
}
