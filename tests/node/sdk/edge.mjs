// The journey in an edge runtime: bundled into one script, run where there is no Node API. The task is the first argument.
import { pathToFileURL } from "node:url";

const modules = process.argv[3];
const load = (name) => import(pathToFileURL(`${modules}/${name}`).href);
const { build } = (await load("esbuild/lib/main.js")).default;
const { EdgeRuntime } = (await load("edge-runtime/dist/edge-runtime.js")).default;

const worker = `
import { journey } from "./journey.mjs";
addEventListener("fetch", (event) => event.respondWith(
  event.request.json().then(journey).then(
    (seen) => Response.json(seen), (error) => new Response(String(error.stack), { status: 500 }))));
`;
const bundled = await build({
  stdin: { contents: worker, resolveDir: process.cwd() },
  bundle: true,
  write: false,
  format: "iife",
  platform: "neutral",
});
const runtime = new EdgeRuntime({ initialCode: bundled.outputFiles[0].text });
const answer = await runtime.dispatchFetch("http://edge.test/", { method: "POST", body: process.argv[2] });
console.log(await answer.text());
process.exit(answer.ok ? 0 : 1);
