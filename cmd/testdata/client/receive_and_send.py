"""receive N: prints the payloads of N messages, and acknowledges them. send TO: sends a message. The relay misbehaves."""

import json
import sys

from relay_client import Relay

with Relay() as relay:
    if sys.argv[1] == "send":
        print(relay.send(sys.argv[2], {"n": 1}).message_id)
    else:
        for _, m in zip(range(int(sys.argv[2])), relay.listen()):
            with m.working():
                print(json.dumps(m.payload), flush=True)
