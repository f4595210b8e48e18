"""A worker that answers, and a program that asks it:
   python3 example.py worker
   RELAY_TO=bob^demo python3 example.py asker 3
RELAY_URL and RELAY_KEY say where, and as whom. relay_client.py stands beside this file."""

import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor

from relay_client import RelayError, SyncRelay


def worker(relay):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    for m in relay.listen():
        with m.working():  # acks processing, then completed, or failed with the text of the error
            m.reply({"echo": m.payload["n"]})


def asker(relay, n):
    def ask(i):
        answer = relay.ask(os.environ["RELAY_TO"], {"n": i}, timeout=300)
        assert answer.payload == {"echo": i}, answer.payload
        return i

    with ThreadPoolExecutor(8) as pool:
        for i in pool.map(ask, range(1, n + 1)):
            print(i, flush=True)


if __name__ == "__main__":
    try:
        with SyncRelay() as relay:
            worker(relay) if sys.argv[1] == "worker" else asker(relay, int(sys.argv[2]))
    except RelayError as e:
        print(e.code, e.detail, file=sys.stderr)
        sys.exit(1)
