// agent.mjs N: answers questions, and meanwhile asks RELAY_TO N questions, thirty at once. It
// prints what it does.
import process from "node:process";
import { Relay } from "./relay.mjs";

const relay = new Relay();
const n = Number(process.argv[2]);
const stop = new AbortController();
process.on("SIGTERM", () => stop.abort());

async function listen() {
  for await (const m of relay.listen({ signal: stop.signal })) {
    console.log(m.inReplyTo ? "stray" : "work", m.id);
    if (!m.inReplyTo) m.handle(() => m.reply({ echo: m.payload.n, by: "javascript" }));
  }
}

let next = 1;
async function ask() {
  for (let i = next++; i <= n; i = next++) {
    const answer = await relay.ask(process.env.RELAY_TO, { n: i }, { timeout: 600_000 });
    if (answer.payload.echo !== i) throw new Error(`the answer to ${i} is ${await answer.text()}`);
    console.log("answer", i, answer.id);
  }
}

const listening = listen();
await Promise.all(Array.from({ length: 30 }, ask));
console.log("done");
await listening;
