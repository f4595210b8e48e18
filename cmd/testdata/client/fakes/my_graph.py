"""A graph that is made up. It has the shape of a compiled graph of LangGraph with a checkpointer."""

import asyncio
import types

threads, busy = {}, set()


class Graph:
    async def ainvoke(self, state, config):
        thread = config["configurable"]["thread_id"]
        if thread in busy:
            raise RuntimeError("two calls at once in one thread")
        busy.add(thread)
        try:
            await asyncio.sleep(0.01)
            (said,) = state["messages"]
            assert said["role"] == "user"
            if said["content"] == "fail":
                raise ValueError("there are no seats")
            threads.setdefault(thread, {})[said["id"]] = said  # as the reducer add_messages does
            answer = types.SimpleNamespace(content="%d: %s" % (len(threads[thread]), said["content"]))
            return {"messages": list(threads[thread].values()) + [answer]}
        finally:
            busy.discard(thread)


graph = Graph()
