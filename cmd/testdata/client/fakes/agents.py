"""The calls of the OpenAI Agents SDK that a recipe makes, with a model that is made up: it looks for an agent, asks
it, and repeats what it was told."""

import inspect
import types

sessions = {}


def function_tool(f):
    assert f.__doc__ and inspect.signature(f).return_annotation in (str, "str")
    return types.SimpleNamespace(name=f.__name__, description=f.__doc__, invoke=f)


class Agent:
    def __init__(self, name, instructions, tools):
        self.name, self.instructions, self.tools = name, instructions, {t.name: t for t in tools}


class SQLiteSession:
    def __init__(self, session_id, db_path):
        self.items = sessions.setdefault((session_id, db_path), [])


class Runner:
    @staticmethod
    async def run(starting_agent, input, *, session=None):
        session.items.append(input)
        found = await starting_agent.tools["find_agents"].invoke(task="book a flight")
        address = found.split(":")[0] if "nobody" not in input else "nobody^py"
        answer = await starting_agent.tools["ask_agent"].invoke(address=address, text=input)
        return types.SimpleNamespace(final_output="turn %d, %s says %s" % (len(session.items), found, answer))
