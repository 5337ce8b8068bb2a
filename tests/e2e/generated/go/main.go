// The calls of a client that OpenAPI Generator makes for Go.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"example.com/sample/gateway"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	configuration := gateway.NewConfiguration()
	configuration.Servers = gateway.ServerConfigurations{{URL: os.Getenv("BASE_URL")}}
	configuration.AddDefaultHeader("Authorization", "Bearer "+os.Getenv("API_KEY"))
	client, ctx := gateway.NewAPIClient(configuration), context.Background()

	text := gateway.NewTextMessage(os.Getenv("FROM"), "text", *gateway.NewTextContent("Hello"))
	text.SetTo(os.Getenv("CUSTOMER"))
	send := client.MessagesAPI.SendMessage(ctx).OutgoingMessage(gateway.TextMessageAsOutgoingMessage(text))
	sent, _, err := send.IdempotencyKey(os.Getenv("KEY")).Execute()
	if err != nil {
		return err
	}
	repeated, _, err := send.IdempotencyKey(os.Getenv("KEY")).Execute()
	if err != nil {
		return err
	}

	text.SetFrom("nobody")
	_, refused, err := send.Execute()
	if err == nil {
		return fmt.Errorf("sent from nobody")
	}

	first, _, err := client.EventsAPI.ListEvents(ctx).Limit(1).Execute()
	if err != nil {
		return err
	}
	next, _, err := client.EventsAPI.ListEvents(ctx).Limit(1).Cursor(first.GetNextCursor()).Execute()
	if err != nil {
		return err
	}

	var event gateway.Event
	if err := json.Unmarshal([]byte(os.Getenv("EVENT")), &event); err != nil {
		return err
	}
	received := event.MessageInboundEvent.Data.Message.InboundTextMessage

	return json.NewEncoder(os.Stdout).Encode(map[string]any{
		"wamid":    sent.Messages[0].Id,
		"repeated": repeated.Messages[0].Id,
		"refused":  refused.StatusCode,
		"events":   []string{first.Data[0].Id, next.Data[0].Id},
		"received": received.Text.Body,
	})
}
