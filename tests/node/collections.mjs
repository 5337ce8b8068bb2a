// Imports the collections as Postman and Bruno do: node collections.mjs POSTMAN BRUNO. Prints what each understood.
import { readFileSync } from "node:fs";
import bruno from "@usebruno/schema";
import postman from "postman-collection";

const [postmanFile, brunoFile] = process.argv.slice(2);

const collection = new postman.Collection(JSON.parse(readFileSync(postmanFile, "utf8")));
const understood = [];
collection.forEachItem((item) => {
  const variables = new postman.VariableList(null, [{ key: "base_url", value: "http://127.0.0.1:8000" }]);
  const auth = item.getAuth();
  understood.push({
    name: item.name,
    method: item.request.method,
    url: variables.replace(item.request.url.toString()),
    auth: auth ? auth.type : null,
    body: item.request.body ? item.request.body.mode : null,
  });
});

const imported = JSON.parse(readFileSync(brunoFile, "utf8"));
await bruno.collectionSchema.validate(imported, { strict: true });
const requests = imported.items.flatMap((folder) => folder.items);
console.log(
  JSON.stringify({
    postman: understood,
    bruno: requests.map((item) => ({ name: item.name, method: item.request.method, url: item.request.url })),
  }),
);
