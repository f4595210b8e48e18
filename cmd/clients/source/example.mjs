// A worker that answers, and a program that asks it: node example.mjs worker | asker N
// RELAY_URL and RELAY_KEY say where and as whom, RELAY_TO whom to ask. Version 0.0.0-unstamped.
import process from "node:process";
import { Relay } from "./relay.mjs";

const [role, count] = process.argv.slice(2);
const relay = new Relay();
const stop = new AbortController();
process.on("SIGTERM", () => stop.abort());
process.on("SIGINT", () => stop.abort());

async function work() {
  for await (const m of relay.listen({ signal: stop.signal })) {
    const { n } = m.payload;
    await m.handle(() => (Number.isInteger(n) ? m.reply({ echo: n }) : m.ack("rejected", "the payload has no n")));
  }
}

async function ask(n) {
  let next = 1;
  const asker = async () => {
    for (let i = next++; i <= n; i = next++) {
      const answer = await relay.ask(process.env.RELAY_TO, { n: i }, { timeout: 600_000, signal: stop.signal });
      if (answer.payload.echo !== i) throw new Error(`the answer to ${i} is ${await answer.text()}`);
      console.log(i);
    }
  };
  await Promise.all(Array.from({ length: 8 }, asker));
}

try {
  await (role === "asker" ? ask(Number(count)) : work());
} catch (e) {
  console.error(e.code ?? "", e.message);
  process.exit(1);
}
