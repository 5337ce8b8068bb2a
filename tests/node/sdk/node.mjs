// The journey in Node: the task comes as the first argument.
import { journey } from "./journey.mjs";

console.log(JSON.stringify(await journey(JSON.parse(process.argv[2]))));
