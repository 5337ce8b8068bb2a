import type { IAuthenticateGeneric, ICredentialTestRequest, ICredentialType, INodeProperties } from "n8n-workflow";

/** The address of a gateway, and an API key. */
export class WhabuzzApi implements ICredentialType {
  name = "whabuzzApi";
  displayName = "Whabuzz API";
  icon = "file:../nodes/Whabuzz/whabuzz.svg" as const;
  documentationUrl = "={{$self.baseUrl}}/docs/n8n/";
  properties: INodeProperties[] = [
    {
      displayName: "Base URL",
      name: "baseUrl",
      type: "string",
      default: "",
      required: true,
      placeholder: "https://gateway.example",
      description: "The address of your gateway",
    },
    {
      displayName: "API Key",
      name: "apiKey",
      type: "string",
      typeOptions: { password: true },
      default: "",
      required: true,
      placeholder: "wb_live_…",
      description: "A key with the scope messages, and webhooks for the trigger",
    },
  ];
  authenticate: IAuthenticateGeneric = {
    type: "generic",
    properties: { headers: { Authorization: "=Bearer {{$credentials.apiKey}}" } },
  };
  test: ICredentialTestRequest = {
    request: { baseURL: "={{$credentials.baseUrl}}", url: "/v1/tenant" },
  };
}
