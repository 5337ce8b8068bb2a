import com.facebook.ads.sdk.APIContext;
import com.facebook.ads.sdk.APIException;
import com.facebook.ads.sdk.APINode;
import com.facebook.ads.sdk.APIRequest;
import com.facebook.ads.sdk.WhatsAppBusinessAccount;
import com.google.gson.Gson;
import com.google.gson.JsonObject;
import java.io.File;
import java.util.List;
import java.util.Map;

/** Calls of Meta's unmodified Java SDK. Each is a line of JSON on standard output, with the reason of a failure. */
public final class Calls {
  private static final String VERSION = "v25.0";
  private static final String PHONE = System.getenv("PHONE");
  private static final String CUSTOMER = System.getenv("CUSTOMER");
  private static final String LINK = "https://shop.example/a.jpg";
  private static final Gson GSON = new Gson();

  private interface Call {
    Object make() throws APIException;
  }

  public static void main(String[] arguments) {
    String gateway = System.getenv("GATEWAY");
    APIContext context =
        new APIContext(gateway, gateway, VERSION, System.getenv("KEY"), null, null, false);
    WhatsAppBusinessAccount account =
        new WhatsAppBusinessAccount(System.getenv("ACCOUNT"), context);
    List<Object> components = List.of(Map.of("type", "BODY", "text", "Hello there."));

    tell("account", () -> account.get().requestField("id").requestField("name").execute());
    tell("phone_numbers", () -> account.getPhoneNumbers().requestField("id").execute());
    tell("message_templates", () -> account.getMessageTemplates().requestField("name").execute());
    tell(
        "create_message_template",
        () ->
            account
                .createMessageTemplate()
                .setName("greeting_java")
                .setLanguage("en_US")
                .setCategory(WhatsAppBusinessAccount.EnumCategory.VALUE_UTILITY)
                .setComponents((List) components)
                .execute());
    tell(
        "delete_message_templates",
        () -> account.deleteMessageTemplates().setName("greeting_java").execute());
    tell("subscribed_apps", () -> account.getSubscribedApps().execute());
    tell("create_subscribed_app", () -> account.createSubscribedApp().execute());
    tell("create_flow", () -> account.createFlow().setName("booking_java").execute());
    tell("flows", () -> account.getFlows().requestField("id").execute());
    tell("schedules", () -> account.getSchedules().execute());
    tell("activities", () -> account.getActivities().execute());
    tell("product_catalogs", () -> account.getProductCatalogs().requestField("id").execute());

    tell("text", () -> send(context, "text", Map.of("body", "Hello")));
    Map<String, Object> template =
        Map.of("name", "hello_world", "language", Map.of("code", "en_US"));
    tell("template", () -> send(context, "template", template));
    tell("image", () -> send(context, "image", Map.of("link", LINK)));
    Map<String, Object> reply =
        Map.of("type", "reply", "reply", Map.of("id", "yes", "title", "Yes"));
    Map<String, Object> ask =
        Map.of(
            "type", "button",
            "body", Map.of("text", "Ok?"),
            "action", Map.of("buttons", List.of(reply)));
    tell("interactive", () -> send(context, "interactive", ask));
    tell(
        "read",
        () ->
            of(context, PHONE, "/messages", "POST")
                .setParam("status", "read")
                .setParam("message_id", System.getenv("RECEIVED"))
                .execute());
    tell(
        "profile",
        () ->
            of(context, PHONE, "/whatsapp_business_profile", "POST")
                .setParam("websites", GSON.toJson(List.of("https://shop.example/")))
                .execute());
    tell("media", () -> of(context, System.getenv("MEDIA"), "", "GET").execute());
    tell(
        "upload",
        () ->
            of(context, PHONE, "/media", "POST")
                .setParam("file", new File(System.getenv("PICTURE")))
                .execute());
  }

  private static APIRequest<APINode> of(
      APIContext context, String node, String edge, String method) {
    APIRequest<APINode> request = new APIRequest<>(context, node, edge, method);
    return method.equals("POST") ? request.setParam("messaging_product", "whatsapp") : request;
  }

  private static Object send(APIContext context, String type, Map<String, Object> content)
      throws APIException {
    return of(context, PHONE, "/messages", "POST")
        .setParam("to", CUSTOMER)
        .setParam("type", type)
        .setParam(type, GSON.toJson(content))
        .execute();
  }

  private static void tell(String name, Call call) {
    JsonObject row = new JsonObject();
    row.addProperty("call", name);
    String error = null;
    try {
      call.make();
    } catch (APIException | RuntimeException problem) {
      error = String.valueOf(problem.getMessage());
    }
    row.addProperty("error", error);
    System.out.println(new com.google.gson.GsonBuilder().serializeNulls().create().toJson(row));
  }
}
