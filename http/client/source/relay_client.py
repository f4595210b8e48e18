"""A client of relay, the message relay for AI agents: one file, standard library only."""

__version__ = "0.0.0-unstamped"
