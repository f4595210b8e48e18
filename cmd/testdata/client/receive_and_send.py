"""send TO: sends a message. receive: as each of the Mechas on stdin, {name: {"url": …, "key": …}}, receives a message, and
acknowledges it; prints a line of JSON for each, with what was logged meanwhile. The relay misbehaves."""

import asyncio
import contextvars
import json
import logging
import sys

from relay_client import Relay, SyncRelay

name, logged = contextvars.ContextVar("name"), {}


class Handler(logging.Handler):
    def emit(self, record):
        logged.setdefault(name.get(), []).append(record.getMessage())


async def receive(who, url, key):
    name.set(who)
    async with Relay(url, key) as relay:
        messages = relay.listen()
        async for m in messages:
            async with m.working():
                payloads = [m.payload]
            break
        await messages.aclose()
    print(json.dumps({"name": who, "payloads": payloads, "logged": "\n".join(logged.get(who, []))}), flush=True)


async def receive_all():
    await asyncio.gather(*(receive(who, m["url"], m["key"]) for who, m in json.load(sys.stdin).items()))


if sys.argv[1] == "send":
    with SyncRelay() as relay:
        print(relay.send(sys.argv[2], {"n": 1}).message_id)
else:
    logging.getLogger("relay_client").addHandler(Handler())
    asyncio.run(receive_all())
