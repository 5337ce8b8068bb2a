// The calls of a client that oapi-codegen makes.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"

	"example.com/sample/gateway"
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	client, err := gateway.NewClientWithResponses(os.Getenv("BASE_URL"), gateway.WithRequestEditorFn(
		func(_ context.Context, request *http.Request) error {
			request.Header.Set("Authorization", "Bearer "+os.Getenv("API_KEY"))
			return nil
		}))
	if err != nil {
		return err
	}

	customer, key := os.Getenv("CUSTOMER"), os.Getenv("KEY")
	text := gateway.TextMessage{
		From: os.Getenv("FROM"), To: &customer, Type: "text", Text: gateway.TextContent{Body: "Hello"},
	}
	var message gateway.OutgoingMessage
	if err := message.FromTextMessage(text); err != nil {
		return err
	}
	parameters := &gateway.SendMessageParams{IdempotencyKey: &key}
	sent, err := client.SendMessageWithResponse(ctx, parameters, message)
	if err != nil {
		return err
	}
	repeated, err := client.SendMessageWithResponse(ctx, parameters, message)
	if err != nil {
		return err
	}

	text.From = "nobody"
	if err := message.FromTextMessage(text); err != nil {
		return err
	}
	refused, err := client.SendMessageWithResponse(ctx, nil, message)
	if err != nil {
		return err
	}

	limit := 1
	first, err := client.ListEventsWithResponse(ctx, &gateway.ListEventsParams{Limit: &limit})
	if err != nil {
		return err
	}
	next, err := client.ListEventsWithResponse(
		ctx, &gateway.ListEventsParams{Limit: &limit, Cursor: first.JSON200.NextCursor})
	if err != nil {
		return err
	}

	var event gateway.Event
	if err := json.Unmarshal([]byte(os.Getenv("EVENT")), &event); err != nil {
		return err
	}
	inbound, err := event.AsMessageInboundEvent()
	if err != nil {
		return err
	}
	received, err := inbound.Data.Message.AsInboundTextMessage()
	if err != nil {
		return err
	}

	return json.NewEncoder(os.Stdout).Encode(map[string]any{
		"wamid":    sent.JSON200.Messages[0].Id,
		"repeated": repeated.JSON200.Messages[0].Id,
		"refused":  refused.StatusCode(),
		"events":   []string{first.JSON200.Data[0].Id, next.JSON200.Data[0].Id},
		"received": received.Text.Body,
	})
}
