"""sync TO, async TO: asks a question, prints the id of the answer, and closes the client, while the ack may be under way."""

import asyncio
import sys

from relay_client import Relay, SyncRelay

how, to = sys.argv[1:]


async def ask():
    async with Relay() as relay:
        print((await relay.ask(to, {})).id, flush=True)


if how == "sync":
    with SyncRelay() as relay:
        print(relay.ask(to, {}).id, flush=True)
else:
    asyncio.run(ask())
