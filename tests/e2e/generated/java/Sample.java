import java.util.Map;
import org.openapitools.client.ApiClient;
import org.openapitools.client.ApiException;
import org.openapitools.client.api.EventsApi;
import org.openapitools.client.api.MessagesApi;
import org.openapitools.client.model.Event;
import org.openapitools.client.model.EventList;
import org.openapitools.client.model.InboundTextMessage;
import org.openapitools.client.model.MessageInboundEvent;
import org.openapitools.client.model.OutgoingMessage;
import org.openapitools.client.model.TextContent;
import org.openapitools.client.model.TextMessage;

/** The calls of a client that OpenAPI Generator makes for Java. */
public class Sample {
    public static void main(String[] arguments) throws Exception {
        ApiClient client = new ApiClient();
        client.updateBaseUri(System.getenv("BASE_URL"));
        client.setRequestInterceptor(
                request -> request.header("Authorization", "Bearer " + System.getenv("API_KEY")));

        MessagesApi messages = new MessagesApi(client);
        TextMessage text = new TextMessage()
                .from(System.getenv("FROM"))
                .to(System.getenv("CUSTOMER"))
                .type(TextMessage.TypeEnum.TEXT)
                .text(new TextContent().body("Hello"));
        String key = System.getenv("KEY");
        String sent = messages.sendMessage(new OutgoingMessage(text), key, null).getMessages().get(0).getId();
        String repeated = messages.sendMessage(new OutgoingMessage(text), key, null).getMessages().get(0).getId();

        int refused = 0;
        try {
            messages.sendMessage(new OutgoingMessage(text.from("nobody")), null, null);
        } catch (ApiException error) {
            refused = error.getCode();
        }

        EventsApi events = new EventsApi(client);
        EventList first = events.listEvents(null, null, 1, null, null, null, null, null, null, null, null);
        EventList next =
                events.listEvents(first.getNextCursor(), null, 1, null, null, null, null, null, null, null, null);

        Event event = client.getObjectMapper().readValue(System.getenv("EVENT"), Event.class);
        MessageInboundEvent inbound = (MessageInboundEvent) event.getActualInstance();
        InboundTextMessage received = (InboundTextMessage) inbound.getData().getMessage().getActualInstance();

        System.out.println(client.getObjectMapper().writeValueAsString(Map.of(
                "wamid", sent,
                "repeated", repeated,
                "refused", refused,
                "events", new String[] {first.getData().get(0).getId(), next.getData().get(0).getId()},
                "received", received.getText().getBody())));
    }
}
