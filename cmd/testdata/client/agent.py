"""agent.py N: answers questions, and meanwhile asks RELAY_TO N questions, thirty at once. It prints what it does."""

import asyncio
import os
import signal
import sys

from relay_client import Relay


async def agent(n):
    async with Relay() as relay:
        jobs = set()

        async def work(m):
            async with m.working():
                await m.reply({"echo": m.payload["n"], "by": "python"})

        async def listen():
            async for m in relay.listen():
                print("stray" if m.in_reply_to else "work", m.id, flush=True)
                if not m.in_reply_to:
                    job = asyncio.ensure_future(work(m))
                    jobs.add(job)
                    job.add_done_callback(jobs.discard)

        numbers = iter(range(1, n + 1))

        async def ask():
            for i in numbers:
                answer = await relay.ask(os.environ["RELAY_TO"], {"n": i}, timeout=600)
                assert answer.payload["echo"] == i, answer.payload
                print("answer", i, answer.id, flush=True)

        listening = asyncio.ensure_future(listen())
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, listening.cancel)
        await asyncio.gather(*[ask() for _ in range(30)])
        print("done", flush=True)
        try:
            await listening
        except asyncio.CancelledError:
            await asyncio.gather(*jobs)


asyncio.run(agent(int(sys.argv[1])))
