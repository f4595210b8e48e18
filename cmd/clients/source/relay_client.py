"""A client of relay, the message relay for AI agents.

One file, for Python 3.9 and newer, with the standard library alone. "relay client python"
prints it; keep it beside your program.

    from relay_client import Relay

    async with Relay() as relay:                # RELAY_URL, RELAY_KEY or RELAY_KEY_FILE
        async for m in relay.listen():          # reconnects, resumes, knows duplicates
            async with m.working():             # acks processing, then completed or failed
                await m.reply({"price": await quote(m.payload)})

        answer = await relay.ask("flights^acme", {"to": "LIS"}, timeout=60)
        who = await relay.find("book a flight")

Without asyncio, SyncRelay has the same methods:

    with SyncRelay() as relay:
        for m in relay.listen():
            with m.working():
                m.reply({"price": quote(m.payload)})

SyncRelay runs a Relay in a thread of its own. Its methods may be called from any thread,
and it answers pings and renews leases while your code computes.

Every message has an Idempotency-Key and is sent again, with that key, until the relay has
answered: a restart, a lost answer, 429 and 503 make no second message. All errors of the relay
and of the network are RelayError; branch on their code. Troubles of a listener are logged by
the logger "relay_client".
"""

from __future__ import annotations

import asyncio
import base64
import collections
import concurrent.futures
import dataclasses
import hashlib
import hmac
import itertools
import json
import logging
import math
import os
import random
import re
import secrets
import socket
import ssl
import struct
import sys
import threading
import time
import urllib.parse
import weakref
from datetime import datetime, timezone
from typing import Any, Callable, Coroutine, Deque, Dict, Iterable, List, Mapping, Optional, Set, Tuple, Type, TypeVar, Union

__version__ = "0.0.0-unstamped"
__all__ = ["Relay", "SyncRelay", "Message", "SyncMessage", "Listener", "SyncListener", "Sent", "Agent",
           "RelayError", "Unreachable", "NoAnswer", "LeaseLost", "sign", "sign_request"]

log = logging.getLogger("relay_client")

Payload = Union[Mapping[str, Any], bytes]  # bytes: a JSON object, sent as it is

FOREVER = math.inf  # as a timeout
_CONNECT_TIMEOUT = 10.0
_ATTEMPT_TIMEOUT = 30.0  # of one request, beside the time for which it asks the relay to hold it
_LONG_BODY = 1 << 18  # bytes; a longer body is sent once the relay wants it, for a relay that refuses it may stop reading
_CONTINUE_WITHIN = 1.0  # seconds; a proxy that does not know "Expect: 100-continue" says nothing
_BODY_LIMIT = 64 << 20  # bytes of an answer, and of a message of a socket
_QUEUE_MESSAGES, _QUEUE_BYTES = 200, 16 << 20  # that were received and not taken yet; as many again may be set aside
_UNREAD = 1 << 16  # bytes of control frames that a relay may leave unread
_SYNC_LIMIT = 1000  # the most that a relay allows
_REMEMBERED = 20_000  # messages
_PING_EVERY = 20.0  # seconds, within which a relay answers a ping
_POLL_WAIT, _POLL_FOR = 30, 60.0  # seconds of one long-poll; and before sockets are tried again
_BREAKER_WINDOW = 600.0
_QUIET = 3.0  # seconds for which a delay without an end is not reported
_NOT_PENDING = ("already_acknowledged", "message_expired", "message_not_found")
_PROGRESS = ("received", "processing", "deferred")
_QUESTION_MARK = re.compile(r"ask-([0-9a-f]{8})-[0-9a-f]{24}")
_IDEMPOTENCY_KEY = re.compile(r"[!-~]([ -~]*[!-~])?")
_LEFT_FOR = (1, 2, 4)  # seconds for which an answer is left to another process, by attempt
_ANSWER_ACK_WAIT = 1.0  # seconds for which ask waits for the ack of the answer that it has
_ANSWER_ACK_FOR, _ANSWER_ACK_ATTEMPT = 60.0, 5.0  # seconds for which that ack is tried behind ask; and of one request of it
_SEND_SLACK = 2.0  # seconds beyond its time, for the answer to the request that sends a question
_NO_ANSWER_SLACK = 5.0  # seconds beyond its time, for a last look and for the reason
_GRACE = 10.0  # seconds for which close waits for the acks of answers
_BEGUN_WITHIN = 1.0  # seconds from the listener's word that the work begins to the work


# --- errors ---------------------------------------------------------------------------------


class RelayError(Exception):
    """The relay refused, or nothing could be asked of it.

    code: what to branch on; relay errors CODE explains it. "" if a proxy answered.
    status: of HTTP; 0 if there was no answer.
    detail: a sentence for people.
    did_you_mean: with recipient_not_found, addresses that are close.
    retry_after: seconds that the relay asks to wait, or None.
    request_id: names the request in the relay's log.
    temporary: whether the same may succeed later. The client has tried again by then.
    """

    def __init__(self, code: str, detail: str, status: int = 0, did_you_mean: Iterable[str] = (),
                 retry_after: Optional[float] = None, request_id: str = "", temporary: bool = False) -> None:
        self.code, self.detail, self.status = code, detail, status
        self.did_you_mean = list(did_you_mean)
        self.retry_after, self.request_id, self.temporary = retry_after, request_id, temporary
        super().__init__(code, detail)

    def __str__(self) -> str:
        return "%s (%s)" % (_visible(self.detail), _visible(("%d %s" % (self.status, self.code)).strip() if self.status else self.code))


class Unreachable(RelayError):
    """No answer came from the relay: its machine, the network or this machine is in the way."""

    def __init__(self, detail: str, temporary: bool = True) -> None:
        super().__init__("unreachable", detail, temporary=temporary)


class NoAnswer(RelayError):
    """ask has no answer. The message stays with the relay.

    verdict: what the relay says of it, as {"code": "away", "text": "…", "since": "…"}; {} if it did not.
    message_id, conversation_id: of the question.
    idempotency_key: ask again with it, and the same payload, to go on waiting.
    """

    def __init__(self, detail: str, sent: Sent, verdict: Dict[str, Any], idempotency_key: str) -> None:
        super().__init__("no_answer", detail)
        self.message_id, self.conversation_id = sent.message_id, sent.conversation_id
        self.verdict, self.idempotency_key = verdict, idempotency_key


class LeaseLost(RelayError):
    """The lease of a claimed message is over: another worker may have it, so nothing more is done for it."""

    def __init__(self, message_id: str, why: str) -> None:
        super().__init__("lease_lost", "%s is given up: %s" % (message_id, why))


def _is_over(error: RelayError) -> bool:
    """Whether an ack was refused because there is nothing left to do for the message."""
    return error.code in _NOT_PENDING or isinstance(error, LeaseLost)


def _closed() -> RelayError:
    return RelayError("closed", "this client was closed")


def _visible(text: str) -> str:
    """Escapes what could steer a terminal: others have written the text."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in text)


def _text_of(error: BaseException) -> str:
    """The text of an exception of somebody else's code. Its __str__ may raise."""
    try:
        text = error.detail if isinstance(error, RelayError) else str(error)
        return str(text) or type(error).__name__
    except Exception:
        return "%s, whose text cannot be read" % type(error).__name__


def _refusal(r: _Response) -> RelayError:
    """The error of an answer whose status is not 2xx (RFC 9457)."""
    try:
        problem = _loads(r.body)
    except ValueError:
        problem = {}
    if not isinstance(problem, dict) or not isinstance(problem.get("code"), str):
        problem = {}
    code, close = problem.get("code", ""), problem.get("did_you_mean")
    try:
        after: Optional[float] = min(max(float(int(r.headers.get("retry-after", ""))), 0.0), 86400.0)
    except ValueError:
        after = None
    temporary = code in ("nonce_reused", "timestamp_out_of_range") or r.status == 408 or r.status == 429 or r.status >= 500
    return RelayError(code, str(problem.get("detail") or "the relay answered %d" % r.status), r.status,
                      [str(a) for a in close] if isinstance(close, list) else [], after,
                      r.headers.get("x-request-id", ""), temporary and code != "conversation_full")


# --- values ---------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Sent:
    """A message that is on the relay's disk."""

    message_id: str
    conversation_id: str
    created_at: str = ""
    recipient: Optional[Dict[str, Any]] = None  # {"online": …, "last_seen": …, "pending": …}
    replayed: bool = False  # it was sent before, with the same idempotency_key
    message_ids: List[str] = dataclasses.field(default_factory=list)  # of a message to a crew


@dataclasses.dataclass(frozen=True)
class Agent:
    """A Mecha that find has found."""

    address: str
    why: str  # what of its profile matched
    online: bool
    last_seen: Optional[str]
    display_name: str = ""
    description: str = ""
    score: float = 0.0
    search_id: str = ""  # of the search; send and ask pass it on if they get the Agent as the address


def sign(secret: str, body: bytes, nonce: str, timestamp: str) -> str:
    """The header X-Signature: HMAC-SHA256 of body|nonce|timestamp, in Base64."""
    text = body + ("|%s|%s" % (nonce, timestamp)).encode()
    return base64.b64encode(hmac.new(secret.encode(), text, hashlib.sha256).digest()).decode()


def sign_request(secret: str, method: str, target: str, body: bytes, nonce: str, timestamp: str) -> str:
    """The header X-Request-Signature, which covers method and path?query, too."""
    return sign(secret, ("%s|%s|" % (method, target)).encode() + body, nonce, timestamp)


def _dumps(value: Any) -> bytes:
    """Writes JSON. The error of what cannot be written is a ValueError or a TypeError."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _integer(digits: str) -> Any:
    try:
        return int(digits)
    except ValueError:  # Python reads no more than 4,300 digits; a message must not end its reader
        return float(digits)


def _loads(text: Union[str, bytes]) -> Any:
    """Reads JSON. The error of what is none is a ValueError."""
    try:
        return json.loads(text, parse_int=_integer)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _no_constant(word: str) -> Any:
    raise ValueError("%s is no JSON" % word)


def _json_object(data: bytes) -> bytes:
    """Gives data back if it is one JSON object in UTF-8, and nothing else. The error is a ValueError."""
    try:
        value = json.loads(data.decode(), parse_int=_integer, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("the payload is nested too deeply") from None
    except ValueError as e:
        raise ValueError("the payload is no JSON: %s" % e) from None
    if not isinstance(value, dict):
        raise ValueError("the payload must be a JSON object")
    return data


def _seconds(name: str, value: Any, finite: bool = False) -> float:
    """Checks a duration: zero or more seconds; FOREVER, too, unless it must be finite. The error is a ValueError."""
    if not isinstance(value, (int, float)) or not 0 <= value or finite and value == FOREVER:  # NaN is not 0 or more
        raise ValueError("%s must be a number of seconds, 0 or more%s, not %r" % (name, " and finite" if finite else "", value))
    return value


def _whole_seconds(name: str, value: Any) -> Optional[int]:
    """A duration that the relay counts in whole seconds, rounded up; None stays None."""
    return None if value is None else math.ceil(_seconds(name, value, finite=True))


def _key(given: Optional[str]) -> str:
    """The Idempotency-Key that was given, or a new one. The error is a ValueError."""
    if given is None:
        return secrets.token_hex(16)
    if not isinstance(given, str) or len(given) > 128 or _IDEMPOTENCY_KEY.fullmatch(given) is None:
        raise ValueError("idempotency_key must have 1 to 128 printable ASCII characters")
    return given


def _timestamp() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _clock() -> float:
    """Seconds that also pass while the machine sleeps, where the system can tell."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    if sys.platform == "darwin":
        return time.clock_gettime(time.CLOCK_MONOTONIC)
    return time.monotonic()


def _clip(text: str) -> str:
    """Cuts a text to what the detail of an ack may have: 1,024 bytes."""
    data = text.encode("utf-8", "replace")
    return data.decode() if len(data) <= 1024 else data[:1021].decode("utf-8", "ignore") + "…"


class _Backoff:
    """Pauses between attempts: from 0.25 s, each twice as long, half of it random."""

    def __init__(self, most: float) -> None:
        self.most, self.next = most, 0.0

    def pause(self, error: Optional[RelayError] = None) -> float:
        self.next = min(max(self.next * 2, 0.25), self.most)
        after = error.retry_after if error is not None and error.retry_after else 0.0
        return max(self.next * (0.5 + random.random() / 2), after)

    def reset(self) -> None:
        self.next = 0.0


class _Recent:
    """A memory of the latest keys."""

    def __init__(self, most: int = _REMEMBERED) -> None:
        self.most = most
        self.of: collections.OrderedDict[Any, Any] = collections.OrderedDict()

    def put(self, key: Any, value: Any = True) -> None:
        self.of[key] = value
        self.of.move_to_end(key)
        if len(self.of) > self.most:
            self.of.popitem(last=False)

    def get(self, key: Any) -> Any:
        return self.of.get(key)


# --- waiting --------------------------------------------------------------------------------


_T = TypeVar("_T")


def _forget(task: asyncio.Future[Any]) -> None:
    """Takes note of how a task has ended of which nobody wants to know."""
    if not task.cancelled():
        task.exception()


async def _end(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancels tasks, and waits for their end. It says so again and again: some functions of asyncio lose a
    cancellation that comes at the moment in which they are done."""
    left = {t for t in tasks if not t.done()}
    while left:
        for task in left:
            task.cancel()
        done, left = await asyncio.wait(left, timeout=0.5)
        for task in done:
            _forget(task)


async def _all_of(task: asyncio.Future[_T], timeout: Optional[float] = None) -> None:
    """Waits for a task, which ends with the wait: after so many seconds, or if this is cancelled. A cancellation
    always comes through, unlike with asyncio.wait_for before Python 3.12."""
    try:
        await asyncio.wait([task], timeout=timeout)
    except BaseException:
        task.add_done_callback(_forget)
        raise
    finally:
        await _end([task])


async def _within(seconds: float, work: Coroutine[Any, Any, _T]) -> _T:
    """Awaits work for so long; then the error is asyncio.TimeoutError."""
    task = asyncio.ensure_future(work)
    await _all_of(task, seconds)
    if task.cancelled():
        raise asyncio.TimeoutError
    return task.result()


# --- HTTP and the WebSocket -----------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Response:
    status: int
    headers: Dict[str, str]  # names in small letters
    body: bytes

    def json(self) -> Dict[str, Any]:
        try:
            value = _loads(self.body)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise Unreachable("the answer is not from a relay: it is no JSON object")
        return value


_Streams = Tuple[asyncio.StreamReader, asyncio.StreamWriter]
_LOST = (OSError, EOFError, ValueError, asyncio.TimeoutError)  # what reading and writing may raise


def _explain(error: BaseException) -> str:
    if isinstance(error, asyncio.TimeoutError):
        return "it took too long"
    if isinstance(error, EOFError):
        return "the connection is lost"
    return str(error) or type(error).__name__


class _Protocol(asyncio.StreamReaderProtocol):
    """Tells the reader alone why the connection was lost. asyncio keeps the error in a future, too, and prints it as
    "never retrieved" when the garbage collector takes that future before its protocol."""

    def __init__(self, reader: asyncio.StreamReader, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(reader, loop=loop)
        self.reader = reader

    def connection_lost(self, exc: Optional[Exception]) -> None:
        if exc is not None:
            self.reader.set_exception(exc)
        super().connection_lost(None)


async def _connect(host: str, port: int, context: Optional[ssl.SSLContext]) -> _Streams:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(loop=loop)
    protocol = _Protocol(reader, loop)
    transport, _ = await loop.create_connection(lambda: protocol, host, port, ssl=context,
                                                server_hostname=host if context else None)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


def _abort(opening: asyncio.Future[_Streams]) -> None:
    """Lets go of a connection that nobody waits for any more."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result()[1].transport.abort()


class _Transport:
    """Signed requests over kept connections, and sockets. For one event loop."""

    def __init__(self, url: str, key: str, secret: str, ca_file: Optional[str]) -> None:
        try:
            u = urllib.parse.urlsplit(url)
            host, port = u.hostname, u.port
        except ValueError:
            u, host, port = urllib.parse.urlsplit(""), None, None
        if u.scheme not in ("http", "https") or not host:  # the text may hold the key by mistake, so it is not repeated
            raise ValueError("url must be as in http://127.0.0.1:8080 or https://relay.example.com")
        if not key:
            raise ValueError("no key: set RELAY_KEY, or pass key (relay key create ADDRESS issues one)")
        if not (key + secret).isascii() or not (key + secret).isprintable() or " " in key:
            raise ValueError("the key, or the signing secret, has a character in it that none has; it is one line, as relay key create printed it")
        self.host, self.tls, self.prefix = host, u.scheme == "https", u.path.rstrip("/")
        self.port = port or (443 if self.tls else 80)
        self.where = "%s://%s" % (u.scheme, u.netloc.rpartition("@")[2])
        self.authority = u.netloc.rpartition("@")[2]
        self.key, self.secret = key, secret or key
        self.context: Optional[ssl.SSLContext] = None
        if self.tls:
            self.context = ssl.create_default_context()
            try:
                if ca_file:
                    self.context.load_verify_locations(ca_file)  # beside the system's
            except OSError as e:  # ssl.SSLError is one, too
                raise ValueError("ca_file (RELAY_CA_FILE) %s has no certificates: %s" % (ca_file, e.strerror or e)) from e
        self.idle: List[_Streams] = []
        self.expects = True  # until a proxy refuses "Expect: 100-continue"
        self.loop: Optional[asyncio.AbstractEventLoop] = None

    def head(self, method: str, target: str, body: bytes, more: Mapping[str, str]) -> bytes:
        nonce, now = secrets.token_hex(16), _timestamp()
        headers = {"Host": self.authority, "User-Agent": "relay-client-python/" + __version__, "X-Mecha-Key": self.key,
                   "X-Request-Timestamp": now, "X-Nonce": nonce, "X-Signature": sign(self.secret, body, nonce, now),
                   "X-Request-Signature": sign_request(self.secret, method, target, body, nonce, now)}
        if body or method in ("POST", "PUT"):
            headers["Content-Length"] = str(len(body))
            headers["Content-Type"] = "application/json"
        if self.waits_for_leave(body):
            headers["Expect"] = "100-continue"
        headers.update(more)
        for name, value in headers.items():
            if not value.isascii() or not value.isprintable():
                raise ValueError("%s may have printable ASCII characters only" % name)
        lines = ["%s %s%s HTTP/1.1" % (method, self.prefix, target)] + ["%s: %s" % h for h in headers.items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")

    def waits_for_leave(self, body: bytes) -> bool:
        """Whether a request sends its head alone, and its body when the relay wants it (RFC 9110 §10.1.1). A relay that
        refuses a long body resets the connection, and with it a client that is still sending loses the refusal."""
        return self.expects and len(body) > _LONG_BODY

    async def open(self) -> _Streams:
        opening = asyncio.ensure_future(_connect(self.host, self.port, self.context))
        try:
            await _all_of(opening, _CONNECT_TIMEOUT)
            if opening.cancelled():
                raise asyncio.TimeoutError
            return opening.result()
        except asyncio.CancelledError:
            opening.add_done_callback(_abort)
            raise
        except ssl.SSLCertVerificationError as e:
            raise Unreachable("the certificate of %s is not trusted: %s; if it is the right one, name its authority with "
                              "ca_file (RELAY_CA_FILE)" % (self.where, e.verify_message), temporary=False) from e
        except _LOST as e:
            raise Unreachable("no connection to %s: %s" % (self.where, _explain(e))) from e

    async def request(self, method: str, target: str, body: bytes, headers: Mapping[str, str], timeout: float) -> _Response:
        """One request, signed anew. It is made twice if a kept connection turns out to be closed."""
        loop = asyncio.get_running_loop()
        if loop is not self.loop:  # connections belong to the loop that made them
            self.loop, self.idle = loop, []
        r = await self.attempt(method, target, body, headers, timeout)
        if r.status == 417 and self.waits_for_leave(body):
            self.expects = False
            r = await self.attempt(method, target, body, headers, timeout)
        return r

    async def attempt(self, method: str, target: str, body: bytes, headers: Mapping[str, str], timeout: float) -> _Response:
        head = self.head(method, target, body, headers)
        while self.idle:
            streams = self.idle.pop()
            if streams[0].at_eof() or streams[1].is_closing():
                streams[1].transport.abort()
                continue
            try:
                return await self.exchange(streams, method, head, body, timeout)
            except _StaleConnection:
                self.drop()
                head = self.head(method, target, body, headers)
        streams = await self.open()
        try:
            return await self.exchange(streams, method, head, body, timeout)
        except _StaleConnection as e:
            raise Unreachable("no answer from %s: the connection is lost" % self.where) from e

    async def exchange(self, streams: _Streams, method: str, head: bytes, body: bytes, timeout: float) -> _Response:
        keep = False
        try:
            response, keep = await _within(timeout, self.talk(streams, method, head, body))
            return response
        except _LOST as e:
            raise Unreachable("no answer from %s: %s" % (self.where, _explain(e))) from e
        finally:
            if keep and len(self.idle) < 32:
                self.idle.append(streams)
            else:
                streams[1].transport.abort()

    async def talk(self, streams: _Streams, method: str, head: bytes, body: bytes) -> Tuple[_Response, bool]:
        """Reads the answer while the request is still being sent: the relay may refuse before it has read all."""
        reader, writer = streams
        if not self.waits_for_leave(body):
            writer.write(head + body)
            response, keep = await _read_response(reader, method)
            return response, keep and not writer.transport.get_write_buffer_size()
        sent = False

        def go_on() -> None:
            nonlocal sent
            if not sent:
                sent = True
                writer.write(body)

        writer.write(head)
        timer = asyncio.get_running_loop().call_later(_CONTINUE_WITHIN, go_on)
        try:
            response, keep = await _read_response(reader, method, go_on)
            return response, keep and sent and not writer.transport.get_write_buffer_size()
        finally:
            timer.cancel()

    def drop(self) -> None:
        """Closes the connections that are kept."""
        idle, self.idle = self.idle, []
        for _, writer in idle:
            if self.loop is asyncio.get_running_loop():
                writer.transport.abort()

    async def websocket(self, target: str) -> _Socket:
        """Opens a WebSocket (RFC 6455 §4.1). A refusal is a RelayError."""
        reader, writer = await self.open()
        opened = False
        try:
            nonce = base64.b64encode(secrets.token_bytes(16)).decode()
            writer.write(self.head("GET", target, b"", {"Connection": "Upgrade", "Upgrade": "websocket",
                                                        "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": nonce}))
            response, _ = await _within(_CONNECT_TIMEOUT, _read_response(reader, "GET"))
            if response.status // 100 == 2:
                raise RelayError("", "the answer is no WebSocket: is there a proxy that does not know them?", response.status)
            if response.status != 101:
                raise _refusal(response)
            wanted = base64.b64encode(hashlib.sha1((nonce + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()).decode()
            if response.headers.get("sec-websocket-accept") != wanted:
                raise Unreachable("the answer belongs to another WebSocket handshake: is there a proxy that caches?")
            opened = True
            return _Socket(reader, writer)
        except RelayError:
            raise
        except _LOST + (_StaleConnection,) as e:
            raise Unreachable("no WebSocket from %s: %s" % (self.where, _explain(e))) from e
        finally:
            if not opened:
                writer.transport.abort()


class _StaleConnection(Exception):
    """The connection was closed before a byte of the answer came."""


async def _read_response(reader: asyncio.StreamReader, method: str, go_on: Callable[[], None] = lambda: None) -> Tuple[_Response, bool]:
    """Reads one answer (RFC 9112); and whether the connection stays open. A 101 has no body. A 100 calls go_on."""
    while True:
        try:
            line = await reader.readline()
        except ConnectionError as e:
            raise _StaleConnection() from e
        if not line:
            raise _StaleConnection()
        words = line.decode("latin-1").split(None, 2)
        if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdigit() or not line.endswith(b"\n"):
            raise ValueError("the answer is not HTTP/1.1")
        status, headers = int(words[1]), await _read_headers(reader)
        if status == 101 or status >= 200:
            break
        if status == 100:
            go_on()
    keep = words[0] == "HTTP/1.1" and "close" not in headers.get("connection", "").lower()
    if method == "HEAD" or status in (101, 204, 304):
        return _Response(status, headers, b""), keep
    if "chunked" in headers.get("transfer-encoding", "").lower():
        return _Response(status, headers, await _read_chunks(reader)), keep
    if "content-length" in headers:
        size = int(headers["content-length"])
        if not 0 <= size <= _BODY_LIMIT:
            raise ValueError("the answer is too long")
        return _Response(status, headers, await reader.readexactly(size)), keep
    body = bytearray()
    while True:
        part = await reader.read(1 << 16)
        body += part
        if not part:
            return _Response(status, headers, bytes(body)), False
        if len(body) > _BODY_LIMIT:
            raise ValueError("the answer is too long")


async def _read_headers(reader: asyncio.StreamReader) -> Dict[str, str]:
    headers: Dict[str, str] = {}
    for _ in range(200):
        line = await reader.readline()
        if not line.endswith(b"\n"):
            raise EOFError
        text = line.decode("latin-1").strip()
        if not text:
            return headers
        name, _, value = text.partition(":")
        headers[name.strip().lower()] = value.strip()
    raise ValueError("the answer has too many headers")


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while True:
        size = int((await reader.readline()).split(b";")[0].strip() or b"x", 16)
        if size < 0 or len(body) + size > _BODY_LIMIT:
            raise ValueError("the answer is too long")
        if size == 0:
            await _read_headers(reader)  # trailers
            return bytes(body)
        body += await reader.readexactly(size)
        await reader.readline()


class _SocketClosed(Exception):
    """The relay has closed the socket, with a code of RFC 6455 §7.4.1."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__("the relay closed the connection: %d %s" % (code, _visible(reason)))
        self.code, self.reason = code, reason


class _Fault(Exception):
    """What came over a socket is against RFC 6455."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__("the socket brought %s" % text)
        self.code = code


class _Socket:
    """The client's side of a WebSocket. It receives messages, and sends control frames alone:
    acknowledgements and answers go by requests, which can be repeated."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.heard = time.monotonic()
        self.full = False  # nothing is read, because what was read waits to be taken

    async def read(self, n: int) -> bytes:
        parts = []
        while n > 0:
            part = await self.reader.read(min(n, 1 << 16))
            if not part:
                raise EOFError
            self.heard = time.monotonic()
            n -= len(part)
            parts.append(part)
        return b"".join(parts)

    async def receive(self) -> bytes:
        """The next message. Pings are answered meanwhile."""
        message, opcode = bytearray(), 0
        while True:
            first, second = await self.read(2)
            op, length = first & 0x0F, second & 0x7F
            if first & 0x70 or second & 0x80:
                raise _Fault(1002, "a frame with reserved bits or a mask")
            if op >= 8:
                if op > 10 or not first & 0x80 or length > 125:
                    raise _Fault(1002, "a malformed control frame")
                self.control(op, await self.read(length))
                continue
            if op > 2 or (op == 0) != (opcode != 0):
                raise _Fault(1002, "a frame that cannot come here")
            opcode = opcode or op
            if length == 126:
                length = struct.unpack("!H", await self.read(2))[0]
            elif length == 127:
                length = struct.unpack("!Q", await self.read(8))[0]
            if len(message) + length > _BODY_LIMIT:
                raise _Fault(1009, "a message of more than %d bytes" % _BODY_LIMIT)
            message += await self.read(length)
            if first & 0x80:
                try:
                    message.decode()
                except UnicodeDecodeError:
                    raise _Fault(1007, "text that is not UTF-8") from None
                return bytes(message)

    def control(self, op: int, data: bytes) -> None:
        if op == 9:
            self.send(10, data)
        elif op == 8:
            code = struct.unpack("!H", data[:2])[0] if len(data) >= 2 else 1005
            self.close(code if code != 1005 else 1000)
            raise _SocketClosed(code, data[2:].decode("utf-8", "replace"))

    def send(self, op: int, data: bytes) -> None:
        """Sends a control frame, of at most 125 bytes."""
        if self.writer.transport.get_write_buffer_size() > _UNREAD:
            raise OSError("the relay does not read what it is sent")
        mask = secrets.token_bytes(4)
        self.writer.write(bytes([0x80 | op, 0x80 | len(data)]) + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(data)))

    async def watch(self) -> None:
        """Pings, and gives up a relay from which nothing has come since the last ping: it is gone, the link is dead, or
        the machine has slept. So a dead link is noticed within 2 * _PING_EVERY seconds."""
        pinged = 0.0
        try:
            while True:
                await asyncio.sleep(_PING_EVERY)
                if not self.full and self.heard < pinged:
                    raise asyncio.TimeoutError
                pinged = time.monotonic()
                self.send(9, b"")
        except _LOST:
            self.writer.transport.abort()  # which ends receive

    def close(self, code: int = 1000) -> None:
        if not self.writer.is_closing():
            try:
                mask, data = secrets.token_bytes(4), struct.pack("!H", code)
                self.writer.write(b"\x88\x82" + mask + bytes(b ^ mask[i] for i, b in enumerate(data)))
            except OSError:
                pass
            self.writer.close()


# --- messages -------------------------------------------------------------------------------


class _Fields:
    """What is known of a message."""

    id: str
    conversation_id: str
    sender: str  # an address; the field "from" of the API
    to: str
    type: str
    priority: str
    correlation_id: str
    in_reply_to: str  # the message that this one answers, or ""
    payload: Any  # a dict; None of a message that this Mecha has sent: only the recipient may read it
    attempt: int  # above 1 if the message comes again, after a lease or a deferral
    signed: Optional[bool]  # whether the relay has verified a signature; None: a socket does not tell
    state: str  # of a record: queued, delivered, acknowledged or expired; "" over a socket
    status: str  # of a record: the latest word of the recipient, as in completed, or ""
    detail: str  # of that word
    created_at: str

    @property
    def sent_at(self) -> datetime:
        """When the relay accepted the message."""
        return datetime.fromisoformat(self.created_at.replace("Z", "+00:00"))

    def __repr__(self) -> str:
        return "<%s %s from %s>" % (type(self).__name__, self.id, self.sender)


class Message(_Fields):
    """A message. For what its methods do, see SyncMessage: here they are awaited."""

    def __init__(self, relay: Relay, data: Mapping[str, Any], listener: Optional[_Receiver] = None) -> None:
        try:
            self.id, self.sender, self.to = str(data["message_id"]), str(data["from"]), str(data["to"])
            self.conversation_id, self.created_at = str(data["conversation_id"]), str(data["created_at"])
            self.type, self.priority = str(data.get("message_type") or "message"), str(data.get("priority") or "normal")
            self.correlation_id, self.in_reply_to = str(data.get("correlation_id") or ""), str(data.get("in_reply_to") or "")
            self.attempt, self.signed = int(data.get("attempt") or 1), data.get("signed")
            ack = data.get("ack") or {}
            self.state, self.status, self.detail = str(data.get("state") or ""), str(ack.get("status") or ""), str(ack.get("detail") or "")
            self.payload = data.get("payload")
            if "payload_base64" in data:
                self.payload = _loads(base64.b64decode(data["payload_base64"], validate=True))
        except (KeyError, TypeError, AttributeError, ValueError) as e:
            raise _Fault(1002, "a message that cannot be read: %s" % _explain(e)) from e
        self._relay, self._listener = relay, listener
        self._settled = ""  # the word by which this program has ended or put off the message
        self._lease = 0.0  # seconds; 0: it is not claimed
        self._until = FOREVER  # the end of the lease
        self._lost = ""  # why the lease is lost
        self._numbers: Dict[str, Set[int]] = {}  # of the replies of this attempt, by what they say
        self._size = 0  # bytes, about
        self._begun = -FOREVER  # when the listener has acked it processing, before it gave it out
        self._decided = False  # it was set aside, and is for the listener
        self._turn = asyncio.Lock()  # one word about the message at a time: a renewal must not come after a deferral

    # A lease counts from before the request that began it, so it ends here before it ends at the relay.
    @property
    def held(self) -> bool:
        ended = self._settled not in ("", "deferred")
        return not self._lease or ended or not self._lost and _clock() < self._until

    def _alive(self) -> Optional[RelayError]:
        if self.held:
            return None
        return LeaseLost(self.id, self._lost or "its lease could not be renewed in time, and another worker may have it now")

    async def _post(self, path: str, body: Dict[str, Any], timeout: float) -> Dict[str, Any]:
        r = await self._relay._call("POST", "/api/v1/messages/%s/%s" % (_quote(self.id), path), body, timeout=timeout, alive=self._alive)
        return r.json()

    async def ack(self, status: str = "completed", detail: Optional[str] = None, timeout: float = FOREVER) -> Dict[str, Any]:
        body: Dict[str, Any] = {"status": status, "client_ts": _timestamp()}
        if detail:
            body["detail"] = _clip(detail)
        async with self._turn:
            answer = await self._post("ack", body, timeout)
            if status.lower() not in _PROGRESS:
                self._settle(status)
            return answer

    async def defer(self, seconds: float, detail: Optional[str] = None, timeout: float = FOREVER) -> Dict[str, Any]:
        if isinstance(seconds, (int, float)):
            seconds = max(seconds, 0)  # below 0 is a moment that has just passed; NaN stays NaN
        pause = max(1, math.ceil(_seconds("seconds", seconds, finite=True)))
        body: Dict[str, Any] = {"status": "deferred", "client_ts": _timestamp(), "retry_after_seconds": pause}
        if detail:
            body["detail"] = _clip(detail)
        async with self._turn:
            answer = await self._post("ack", body, timeout)
            self._settled = "deferred"
        if self._listener is not None:
            self._listener.deferred(self, pause)
        return answer

    def _settle(self, status: str) -> None:
        self._settled = status
        self._relay._settled.put(self.id, self.attempt)

    async def reply(self, payload: Payload, type: str = "reply", idempotency_key: Optional[str] = None,
                    timeout: float = FOREVER, **more: Any) -> Sent:
        lost = self._alive()
        if lost is not None:
            raise lost
        more.setdefault("correlation_id", self.correlation_id or None)
        body = _envelope(self.sender, payload, type=type, in_reply_to=self.id, **more)
        key = None if idempotency_key is None else _key(idempotency_key)
        breaker = self._listener.breaker if self._listener is not None else None
        if breaker is not None and not breaker.begin(self.conversation_id):
            raise RelayError("breaker_open", breaker.why)
        digest, sent = hashlib.sha256(body).hexdigest()[:16], False
        numbers = self._numbers.setdefault(digest, set())
        n = next(i for i in itertools.count(1) if i not in numbers)
        numbers.add(n)
        try:
            answer = await self._relay._send(body, key or "reply-%s-%s-%d" % (self.id, digest, n), timeout,
                                             final=("mailbox_full",), alive=self._alive)
            sent = True
            return answer
        finally:
            if breaker is not None:
                breaker.end(self.conversation_id, sent)
            if not sent:
                numbers.discard(n)  # whether it was sent may be unknown: the next attempt has its number

    def working(self, reraise: bool = False) -> _AsyncWorking:
        return _AsyncWorking(self, reraise)

    async def trace(self) -> Dict[str, Any]:
        return (await self._relay._call("GET", "/api/v1/messages/%s/trace" % _quote(self.id))).json()


class _AsyncWorking:
    """See SyncMessage.working."""

    def __init__(self, message: Message, reraise: bool) -> None:
        self.message, self.reraise = message, reraise

    async def __aenter__(self) -> Message:
        m = self.message
        if m._listener is not None:
            m._listener.works = True
        if not m.held or _clock() - m._begun > _BEGUN_WITHIN:
            await m.ack("processing")
        return m

    async def __aexit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Any) -> bool:
        m = self.message
        if error is not None and (m._relay._closed or not isinstance(error, Exception)):
            return False  # this program is ending: the message stays pending
        if error is not None and not self.reraise:
            log.error("%s failed: %s", m.id, _visible(_text_of(error)), exc_info=(type(error), error, trace))
        if not m._settled:
            if error is None:
                await self._ack("completed", None)
            elif not isinstance(error, LeaseLost):
                await self._ack("failed", _text_of(error))
        return not self.reraise

    async def _ack(self, status: str, detail: Optional[str]) -> None:
        try:
            await self.message.ack(status, detail)
        except RelayError as e:
            if not _is_over(e):
                raise
            log.warning("%s is not acknowledged as %s: %s", self.message.id, status, e)


def _quote(text: str) -> str:
    return urllib.parse.quote(text, safe="")


Recipient = Union[str, Agent]


def _address_of(to: Recipient) -> str:
    address = to.address if isinstance(to, Agent) else to
    if not isinstance(address, str):
        raise TypeError("to must be the address of a Mecha, as a str, or an Agent that find gave, not %r" % (to,))
    return address


def _envelope(to: Recipient, payload: Payload, *, conversation: Optional[str] = None, type: Optional[str] = None,
              in_reply_to: Optional[str] = None, ttl: Optional[int] = None, ack_by: Optional[int] = None,
              max_messages: Optional[int] = None, priority: Optional[str] = None, correlation_id: Optional[str] = None) -> bytes:
    """The body of a POST that sends."""
    fields = {"to": _address_of(to), "conversation_id": conversation, "message_type": type, "in_reply_to": in_reply_to,
              "ttl_seconds": _whole_seconds("ttl", ttl), "ack_by_seconds": _whole_seconds("ack_by", ack_by),
              "max_messages": max_messages, "priority": priority, "correlation_id": correlation_id,
              "search_id": (to.search_id or None) if isinstance(to, Agent) else None}
    head = _dumps({name: value for name, value in fields.items() if value is not None})
    if isinstance(payload, Mapping):
        payload = _dumps(dict(payload))
    elif isinstance(payload, (bytes, bytearray)):
        payload = _json_object(bytes(payload))  # else it could hold a comma, and fields of the message behind it
    else:
        raise TypeError("a payload is a dict, or a JSON object as bytes")
    return head[:-1] + b',"payload":' + payload + b"}"


def _question_mark(to: str, key: str) -> str:
    """The word by which every process of a Mecha knows an answer to a question that one of them asks: its conversation,
    or its correlation id. It tells who may answer, and is the same if the question is asked again with its key."""
    return "ask-%s-%s" % (_digits(to.strip(), 8), _digits(key, 24))


def _digits(text: str, n: int) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:n]


def _may_answer_another(m: Message, ours: _Recent) -> bool:
    """Whether another process of this Mecha may have asked what this message answers, and may still wait for it.
    ours has the marks of what this process has asked: it knows itself whether it waits."""
    if m.sender == m.to and not m.in_reply_to:  # the question itself
        return False
    marks = [_QUESTION_MARK.fullmatch(word) for word in (m.conversation_id, m.correlation_id)]
    of_sender = [mark.group() for mark in marks if mark is not None and mark.group(1) == _digits(m.sender, 8)]
    return bool(of_sender) and not any(ours.get(mark) for mark in of_sender)


# --- listening ------------------------------------------------------------------------------


class _Breaker:
    """Stops two agents that answer each other without end."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.sent: Deque[Tuple[float, str]] = collections.deque()
        self.count: Dict[str, int] = {}
        self.why = "not answered: this conversation has had %d automatic answers in ten minutes" % most

    def spent(self, conversation: str) -> bool:
        now = _clock()
        while self.sent and now - self.sent[0][0] >= _BREAKER_WINDOW:
            self._forget(self.sent.popleft()[1])
        return self.most > 0 and self.count.get(conversation, 0) >= self.most

    def begin(self, conversation: str) -> bool:
        if self.spent(conversation):
            return False
        self.count[conversation] = self.count.get(conversation, 0) + 1
        return True

    def end(self, conversation: str, sent: bool) -> None:
        if sent:
            self.sent.append((_clock(), conversation))
        else:
            self._forget(conversation)

    def _forget(self, conversation: str) -> None:
        self.count[conversation] -= 1
        if not self.count[conversation]:
            del self.count[conversation]


class _Queue:
    """Messages that were received and not taken yet: bounded in number and in bytes."""

    def __init__(self) -> None:
        self.items: Deque[Message] = collections.deque()
        self.bytes = 0
        self.ended = False
        self.error: Optional[BaseException] = None
        self.changed = asyncio.Condition()

    async def put(self, message: Message) -> None:
        async with self.changed:
            await self.changed.wait_for(lambda: self.ended or len(self.items) < _QUEUE_MESSAGES and self.bytes < _QUEUE_BYTES)
            self.items.append(message)
            self.bytes += message._size
            self.changed.notify_all()

    async def get(self) -> Optional[Message]:
        """None: the listener was closed. What ended it is raised once all is taken."""
        async with self.changed:
            await self.changed.wait_for(lambda: bool(self.items) or self.ended)
            if self.items and not (self.ended and self.error is None):
                message = self.items.popleft()
                self.bytes -= message._size
                self.changed.notify_all()
                return message
            if self.error is not None:
                raise self.error
            return None

    async def put_back(self, message: Message) -> None:
        """Puts a message that was taken in its place by age, however full the queue is."""
        async with self.changed:
            place = next((i for i, other in enumerate(self.items) if other.id > message.id), len(self.items))
            self.items.insert(place, message)
            self.bytes += message._size
            self.changed.notify_all()

    async def end(self, error: Optional[BaseException]) -> None:
        async with self.changed:
            if not self.ended:
                self.ended, self.error = True, error
            self.changed.notify_all()


@dataclasses.dataclass
class _Aside:
    """A message that was set aside until it is known for whom it is."""

    after: str  # the message before it, behind which the place stays
    size: int
    task: asyncio.Future[None]


class _Receiver:
    """What receives for a listener. It lives on while its tasks run; a listener that is dropped ends it."""

    def __init__(self, relay: Relay, live: bool, claim: bool, lease: int, worker: Optional[str], state: Optional[str], breaker: int) -> None:
        if claim and state is not None:
            raise ValueError("state does not go with claim: the relay knows what is left to do")
        if not isinstance(breaker, int):
            raise ValueError("breaker must be a whole number of answers, and 0 or less is any number, not %r" % (breaker,))
        if not 5 <= _seconds("lease", lease) <= 3600:
            raise ValueError("lease must be from 5 to 3600 seconds")
        self._relay, self._live, self._claim, self._lease, self._state = relay, live, claim, int(lease), state
        self._worker = worker if worker is not None else "%s-%d" % (socket.gethostname()[:50], os.getpid())
        self.breaker = _Breaker(breaker)
        self.loop: Optional[asyncio.AbstractEventLoop] = None  # in which it has begun
        self._queue: Optional[_Queue] = None
        self._task: Optional[asyncio.Task[None]] = None
        self._claiming: Optional[asyncio.Future[Optional[Message]]] = None
        self._back: Deque[Message] = collections.deque()  # with claim: what was put back
        self._is_back: Optional[asyncio.Future[None]] = None  # for those who wait for a claim
        self._aside: Dict[str, _Aside] = {}  # by message id
        self.works = False  # the latest message was worked on by working
        self._seen = _Recent()  # (message id, attempt)
        self._received = ""  # with state: the last message that was received
        self._given = ""  # the message that is being worked on
        self._passed = self._before = ""  # with state: the newest message that was given out, or set aside; and the one before it
        self._taken = 0  # messages
        self._polling = self._done = False
        relay._listeners.add(self)

    async def close(self) -> None:
        self._done = True
        tasks = [t for t in [self._task, self._claiming] + [a.task for a in self._aside.values()] if t is not None]
        await _end(tasks)
        for task in tasks:
            _forget(task)
        if self._claiming is not None and not self._claiming.cancelled() and self._claiming.exception() is None:
            claimed = self._claiming.result()
            if claimed is not None:
                self._back.append(claimed)
        for m in self._back:  # nobody has taken them: their leases are to end
            m._lost = "the listener was closed"
        if self._queue is not None:
            await self._queue.end(None)

    def dropped(self) -> None:
        """The program has let go of the listener, as by break. Any thread may call this."""
        if self.loop is not None and not self._done:
            try:
                self.loop.call_soon_threadsafe(lambda: self._relay._spawn(self.close()))
            except RuntimeError:
                pass  # the loop is closed

    async def next(self, given: Optional[List[Message]] = None) -> Optional[Message]:
        """The next message, which it puts into given, too. None: the listener was closed."""
        if self._given:
            self._aside.pop(self._given, None)
            if self._state is not None:
                self._keep_place(next((a.after for a in self._aside.values()), self._passed))
            self._given = ""
        while not self._done and not self._relay._closed:
            self.loop = asyncio.get_running_loop()
            message = await self._received_next()
            if message is None:
                break
            try:
                if not message._decided and await self._passes_over(message):
                    continue
                if not await self._begins(message):
                    self._aside.pop(message.id, None)
                    continue
            except asyncio.CancelledError:
                self._relay._spawn(self.put_back([message]))
                raise
            self._given = message.id
            if given is not None:
                given.append(message)
            return message
        return None

    async def _received_next(self) -> Optional[Message]:
        if self._claim:
            return await self._claimed()
        if self._queue is None:
            self._queue = _Queue()
        if self._task is None:
            self._task = asyncio.ensure_future(self._receive(self._queue))
        return await self._queue.get()

    async def _begins(self, m: Message) -> bool:
        """Whether a message may be given out. If the program has used working for the one before, this one is acked
        processing here: one that has expired meanwhile, or was ended elsewhere, is passed over, and does not end the loop."""
        if self.breaker.spent(m.conversation_id):
            log.warning("%s is %s", m.id, self.breaker.why)
            await _AsyncWorking(m, False)._ack("failed", self.breaker.why)
            return False
        works, self.works = self.works, False
        try:
            lost = m._alive()
            if lost is not None:
                raise lost
            if works:
                began = _clock()
                await m.ack("processing")
                m._begun = began
        except RelayError as e:
            self.works = works
            if not _is_over(e):
                raise
            log.warning("%s is passed over: %s", m.id, e)
            return False
        except BaseException:
            self.works = works
            raise
        return True

    async def put_back(self, given: List[Message]) -> None:
        """Takes back what was given to a caller who had gone, or was set aside."""
        for message in given:
            if message.id == self._given:
                self._given = ""  # it was not worked on
            if not self._claim:
                if self._queue is not None:
                    await self._queue.put_back(message)
                continue
            self._back.append(message)
            if self._is_back is not None and not self._is_back.done():
                self._is_back.set_result(None)

    # -- answers to questions

    async def _passes_over(self, m: Message) -> bool:
        """Whether a message is not given out, or not now: it is an answer that ask has taken, or it may be one for ask,
        here or in another process of this Mecha. The latter is set aside until that is known; others do not wait for it."""
        if self._relay._answers.get(m.id):
            return True
        if m.id > self._passed:  # else it has come again
            self._before, self._passed = self._passed, m.id
        left = m.attempt in range(1, len(_LEFT_FOR) + 1) and _may_answer_another(m, self._relay._marks)
        if not left and self._relay._question_of(m) is None:
            return False
        while True:
            open_ = [a for a in self._aside.values() if not a.task.done()]
            if len(open_) < _QUEUE_MESSAGES and sum(a.size for a in open_) < _QUEUE_BYTES:
                break
            await asyncio.wait([a.task for a in open_], return_when=asyncio.FIRST_COMPLETED)
        self._aside[m.id] = _Aside(self._before, m._size, asyncio.ensure_future(self._decide(m, left)))
        return True

    async def _decide(self, m: Message, left: bool) -> None:
        """Finds out for whom a message is that was set aside."""
        over = True
        try:
            over = await self._relay._is_answer(m) or left and await self._leave(m)
        except Exception as e:
            over = self._relay._closed
            if not over:
                log.warning("%s is given out, because it could not be left to another process: %s", m.id, e)
        finally:
            if over or self._state is None:
                self._aside.pop(m.id, None)  # else it is until the message was worked on
        if not over:
            m._decided = True
            await self.put_back([m])

    async def _leave(self, m: Message) -> bool:
        """Leaves a message to the process that may wait for it. Whether it is nothing for this listener now."""
        if self._state is not None:  # which acknowledges nothing
            for pause in _LEFT_FOR:
                await asyncio.sleep(pause)
                if not await self._relay._is_pending(m.id):
                    return True
            return False
        try:
            await m.defer(_LEFT_FOR[m.attempt - 1])
        except RelayError as e:
            if not _is_over(e):
                raise
        return True

    # -- by claims

    async def _claimed(self) -> Optional[Message]:
        """The next message that this worker has claimed. The request goes on if the caller is
        cancelled: its answer may hold a message, which the next call gets."""
        while not self._done:
            if self._back:
                return self._back.popleft()
            if self._claiming is None:
                self._claiming = asyncio.ensure_future(self._claim_one())
            if self._is_back is None or self._is_back.done():
                self._is_back = asyncio.get_running_loop().create_future()
            task = self._claiming
            await asyncio.wait([task, self._is_back], return_when=asyncio.FIRST_COMPLETED)
            if self._claiming is task and task.done() and not task.cancelled():  # else another consumer was faster, or close was
                self._claiming = None
                if self._relay._closed and task.exception() is not None:
                    return None
                return task.result()
        return None

    async def _claim_one(self) -> Optional[Message]:
        wait, backoff = min(self._lease // 3, 60), _Backoff(10)
        while True:
            asked = _clock()
            try:
                own = await self._relay._address(0)
                r = await self._relay._call("POST", "/api/v1/mecha/%s/claim" % _quote(own), {
                    "limit": 1, "lease_seconds": self._lease, "worker": self._worker, "wait": wait}, timeout=0, hold=wait)
                for record in r.json().get("messages") or []:
                    m = Message(self._relay, record, self)
                    m._size, m._lease, m._until = len(r.body), float(self._lease), asked + self._lease
                    self._relay._spawn(_renew(weakref.ref(m), self._lease))
                    return m
                backoff.reset()
            except RelayError as e:
                if not e.temporary:
                    raise
                await self._pause(e, backoff)
            except _Fault as e:
                await self._pause(Unreachable(str(e)), backoff)

    async def _pause(self, error: RelayError, backoff: _Backoff) -> None:
        pause = backoff.pause(error)
        log.log(logging.WARNING if backoff.next <= 0.25 else logging.INFO, "%s; trying again in %.1f s", error, pause)
        await asyncio.sleep(pause)

    # -- by a WebSocket, or long-polls

    async def _receive(self, queue: _Queue) -> None:
        """Receives until the listener is closed, or the relay refuses for good."""
        try:
            backoff, failures, no_sockets = _Backoff(10), 0, 0.0
            own = await self._address(backoff)
            self._load_place(own)
            while True:
                taken, began = self._taken, time.monotonic()
                try:
                    self._polling = not self._live or failures >= 3 or time.monotonic() < no_sockets
                    if self._polling:
                        await self._poll(queue, own)
                    else:
                        await self._stream(queue, own)
                    failures = 0
                    backoff.reset()
                    continue
                except (_SocketClosed, _Fault) as e:
                    if isinstance(e, _SocketClosed) and e.code == 1008:
                        raise RelayError(e.reason or "key_revoked", "the relay closed the connection: %s" % e.reason, 401) from e
                    error: RelayError = Unreachable(str(e))
                except RelayError as e:
                    if not self._polling and (e.code == "upgrade_required" or not e.code and not e.temporary):
                        no_sockets = time.monotonic() + 5 * _POLL_FOR  # a proxy does not let sockets pass
                    elif not e.temporary:
                        raise
                    error = e
                except _LOST as e:
                    error = Unreachable("the connection is lost: %s" % _explain(e))
                if self._taken > taken or time.monotonic() - began > _POLL_FOR:
                    backoff.reset()  # it was of use
                    failures = 0
                failures = 0 if self._polling else failures + 1
                await self._pause(error, backoff)
        except asyncio.CancelledError:
            await queue.end(None)
            raise
        except Exception as e:
            await queue.end(None if self._relay._closed else e)

    async def _address(self, backoff: _Backoff) -> str:
        while True:
            try:
                return await self._relay._address(0)
            except RelayError as e:
                if not e.temporary:
                    raise
                await self._pause(e, backoff)

    async def _stream(self, queue: _Queue, own: str) -> None:
        """Reads one socket to its end. It returns if a window is full that nobody will empty:
        the next socket begins after it, sooner than the relay would go on."""
        query = "sync_limit=%d&events=sync" % _SYNC_LIMIT
        if self._state is not None and self._received:
            query += "&since_message_id=" + _quote(self._received)
        socket_ = await self._relay._transport.websocket("/api/v1/ws/mecha/%s?%s" % (_quote(own), query))
        log.info("listening as %s", own)
        watch, behind, n = asyncio.ensure_future(socket_.watch()), True, 0
        fault = 1000
        try:
            while True:
                data = await socket_.receive()
                try:
                    frame = _loads(data)
                except ValueError:
                    frame = None
                if not isinstance(frame, dict):
                    raise _Fault(1002, "text that is no JSON object")
                kind = frame.get("type")
                if kind == "sync" and frame.get("phase") == "end":
                    behind = False
                elif kind == "message":
                    n += 1
                    socket_.full = True
                    await self._take(queue, Message(self._relay, frame, self), len(data))
                    socket_.full, socket_.heard = False, time.monotonic()
                    if behind and n == _SYNC_LIMIT and self._state is not None:
                        return
        except _Fault as e:
            fault = e.code
            raise
        finally:
            watch.cancel()
            socket_.close(fault)

    async def _poll(self, queue: _Queue, own: str) -> None:
        """Reads history with long-polls; for a while, if sockets are to be tried again."""
        end = time.monotonic() + (_POLL_FOR if self._live else FOREVER)
        cursor = self._received if self._state is not None else ""
        query = "direction=in&include=payload&limit=100" + ("" if cursor else "&state=pending")
        while time.monotonic() < end:
            target = "/api/v1/mecha/%s/messages?%s&wait=%d" % (_quote(own), query, _POLL_WAIT)
            page = (await self._relay._call("GET", target + ("&since_message_id=" + _quote(cursor) if cursor else ""),
                                            timeout=0, hold=_POLL_WAIT)).json()
            for record in page.get("messages") or []:
                m = Message(self._relay, record, self)
                if m.state != "expired":
                    await self._take(queue, m, len(str(m.payload)))
            cursor = page.get("next_cursor") or cursor

    async def _take(self, queue: _Queue, m: Message, size: int) -> None:
        """Gives a message to the consumer, unless it has come before."""
        if self._state is not None:
            self._received = m.id
        if not await self._fresh(m):
            return
        self._seen.put((m.id, m.attempt))
        self._taken += 1
        m._size = size
        await queue.put(m)

    async def _fresh(self, m: Message) -> bool:
        """Whether a message is to be worked on. One that is in hand is not. One that was done and
        comes again is, if the relay has lost that, as after relay restore."""
        settled = self._relay._settled.get(m.id)
        if settled is None or settled < m.attempt:
            return not self._seen.get((m.id, m.attempt))
        if self._state is not None:
            return False
        return await self._relay._is_pending(m.id)

    def deferred(self, m: Message, seconds: float) -> None:
        """A socket and a claim bring a message again when its time has come. History does not."""
        queue = self._queue
        if not self._polling or self._claim or queue is None:
            return

        async def again() -> None:
            await asyncio.sleep(seconds)
            try:
                if not await self._relay._is_pending(m.id):
                    return
            except RelayError:
                pass  # then its handler finds out
            later = Message.__new__(Message)
            later.__dict__.update(m.__dict__, attempt=m.attempt + 1, _settled="", _numbers={}, _begun=-FOREVER, _decided=False, _turn=asyncio.Lock())
            if queue is not None and not self._done:
                self._seen.put((later.id, later.attempt))
                await queue.put(later)

        self._relay._spawn(again())

    # -- the place, with state

    def _load_place(self, own: str) -> None:
        if self._state is None:
            return
        self._own = own
        try:
            with open(self._state, encoding="utf-8") as f:
                place = _loads(f.read())
            if place["mecha_id"] != own:
                raise ValueError("it belongs to %s" % place["mecha_id"])
            self._received = self._passed = str(place["after"])
        except FileNotFoundError:
            self._keep_place("")  # so that a fault shows now
        except (ValueError, KeyError, TypeError) as e:
            raise ValueError("%s does not keep the place of a listener of %s: %s" % (self._state, own, e)) from e

    def _keep_place(self, message_id: str) -> None:
        assert self._state is not None
        with open(self._state + ".new", "w", encoding="utf-8") as f:
            f.write(json.dumps({"mecha_id": self._own, "after": message_id}) + "\n")
            f.flush()
            os.fsync(f.fileno())  # else a power cut may leave an empty file
        os.replace(self._state + ".new", self._state)


class Listener:
    """The messages for a Mecha, as an asynchronous iterator; Relay.listen makes it. It ends with aclose, with its
    relay, and when the program lets go of it, as by break."""

    def __init__(self, receiver: _Receiver) -> None:
        self._receiver = receiver

    def __aiter__(self) -> Listener:
        return self

    async def __anext__(self) -> Message:
        message = await self._receiver.next()
        if message is None:
            raise StopAsyncIteration
        return message

    async def aclose(self) -> None:
        """Ends the iteration. Messages that were not acknowledged stay pending."""
        await self._receiver.close()

    def __del__(self) -> None:
        self._receiver.dropped()


async def _renew(ref: weakref.ref[Message], lease: int) -> None:
    """Renews a lease, each time when a third of it has passed, for as long as the program has the message."""
    pause, backoff = lease / 3, _Backoff(lease / 6)
    while True:
        await asyncio.sleep(pause)
        m = ref()
        if m is None or m._settled or not m.held:
            return
        async with m._turn:
            if m._settled or not m.held:
                return
            asked = _clock()
            try:  # without a detail: the relay keeps the one that it has
                await m._relay._call("POST", "/api/v1/messages/%s/ack" % _quote(m.id), {"status": "processing", "client_ts": _timestamp()},
                                     timeout=0, limit=lease / 3)
                m._until, pause = asked + lease, lease / 3
                backoff.reset()
            except RelayError as e:
                pause = backoff.pause(e)
                if not e.temporary:
                    m._lost = e.detail
                    log.warning("%s is given up: %s", m.id, e)
                    return
        del m


# --- the relay ------------------------------------------------------------------------------


class _Question:
    """A question of ask that has no answer yet (PROTOCOL §3, in_reply_to)."""

    def __init__(self, to: str, conversation_id: str, correlation_id: str) -> None:
        """conversation_id: "" if the relay is going to tell it."""
        self.to, self.conversation_id, self.correlation_id, self.id = to, conversation_id, correlation_id, ""
        self.known = asyncio.Event()  # the relay has told the id, or nobody waits any more
        self.over = asyncio.Event()

    def is_sent(self, sent: Sent) -> None:
        self.id, self.conversation_id = sent.message_id, sent.conversation_id
        self.known.set()

    def end(self) -> None:
        self.known.set()
        self.over.set()

    def may_have(self, m: Message) -> bool:
        """Whether the relay may give this message to ask."""
        if m.sender != self.to or self.conversation_id and m.conversation_id != self.conversation_id:
            return False
        if m.in_reply_to:
            return not self.id or m.in_reply_to == self.id
        if self.correlation_id and m.correlation_id != self.correlation_id:
            return False
        return not self.id or m.id > self.id  # ids sort by age


class Relay:
    """A relay, as one Mecha, for asyncio. For what the methods do, see SyncRelay: here they are awaited.

    One event loop at a time may use it. Close it in that loop, or use it in async with.
    """

    def __init__(self, url: Optional[str] = None, key: Optional[str] = None, signing_secret: Optional[str] = None,
                 ca_file: Optional[str] = None, timeout: float = 60.0) -> None:
        def given(value: Optional[str], variable: str, default: str = "") -> str:
            return (value if value is not None else os.environ.get(variable, "")).strip() or default

        def secret(value: Optional[str], variable: str) -> str:
            file = os.environ.get(variable + "_FILE")
            if value is None and file:
                try:
                    with open(file, encoding="utf-8") as f:
                        value = f.read()
                except (OSError, ValueError) as e:
                    raise ValueError("%s_FILE: %s cannot be read: %s" % (variable, file, getattr(e, "strerror", None) or "it is no text")) from e
            return given(value, variable)

        self.timeout = _seconds("timeout", timeout)
        self._transport = _Transport(given(url, "RELAY_URL", "http://127.0.0.1:8080"), secret(key, "RELAY_KEY"),
                                     secret(signing_secret, "RELAY_SIGNING_SECRET"), given(ca_file, "RELAY_CA_FILE") or None)
        self._own = ""
        self._closed = False
        self._listeners: weakref.WeakSet[_Receiver] = weakref.WeakSet()
        self._tasks: Set[asyncio.Future[None]] = set()
        self._waits: Set[asyncio.Future[Any]] = set()  # of callers, which close ends
        self._settled = _Recent()  # message id: the attempt that this program has ended
        self._questions: List[_Question] = []  # to which ask waits for an answer
        self._acks: Set[asyncio.Future[None]] = set()  # of answers that ask has returned
        self._answers = _Recent()  # that ask has returned: they are not for listeners
        self._marks = _Recent()  # of the questions that were asked here

    async def __aenter__(self) -> Relay:
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()

    async def close(self) -> None:
        self._closed = True
        for receiver in list(self._listeners):
            await receiver.close()
        await _end(self._tasks | self._waits)
        try:
            if self._acks:
                await asyncio.wait(set(self._acks), timeout=_GRACE)
        finally:
            await _end(set(self._acks))
        self._transport.drop()
        await asyncio.sleep(0.01)  # connections that were closed are let go of by the loop

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _unless_closed(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Awaits work. If the relay is closed, the work is cancelled, and the error is closed."""
        if self._closed:
            work.close()
            raise _closed()
        task = asyncio.ensure_future(work)
        self._waits.add(task)
        task.add_done_callback(self._waits.discard)
        await _all_of(task)
        if task.cancelled():
            raise _closed()
        return task.result()

    async def _sleep(self, seconds: float) -> None:
        await self._unless_closed(asyncio.sleep(seconds))

    async def _call(self, method: str, target: str, body: Union[None, bytes, Dict[str, Any]] = None, **how: Any) -> _Response:
        return await self._unless_closed(self._repeat(method, target, body, **how))

    async def _repeat(self, method: str, target: str, body: Union[None, bytes, Dict[str, Any]] = None, *,
                      headers: Optional[Mapping[str, str]] = None, timeout: Optional[float] = None, hold: float = 0.0,
                      limit: float = _ATTEMPT_TIMEOUT, slack: float = 0.0, final: Iterable[str] = (),
                      alive: Optional[Callable[[], Optional[RelayError]]] = None, closing: bool = False) -> _Response:
        """One request, repeated until it succeeds, is refused for good, or timeout is over; 0: one attempt.
        hold: the seconds for which the relay may hold it. slack: those by which the last attempt may exceed timeout. alive:
        gives what ends the attempts. closing: they go on while this relay is being closed."""
        data = b"" if body is None else body if isinstance(body, bytes) else _dumps(body)
        began = _clock()
        end, said = began + (self.timeout if timeout is None else _seconds("timeout", timeout)), False
        backoff, final = _Backoff(2), tuple(final)
        while True:
            if self._closed and not closing:
                raise _closed()
            dead = alive() if alive is not None else None
            if dead is not None:
                raise dead
            most = limit + hold
            if timeout != 0:
                most = min(most, max(end - _clock() + slack, 0.1))
            try:
                r = await self._transport.request(method, target, data, headers or {}, most)
                if r.status // 100 == 2:
                    return r
                error = _refusal(r)
            except Unreachable as e:
                error = e
            pause = backoff.pause(error)
            if not error.temporary or error.code in final or timeout == 0 or _clock() + pause > end:
                raise error
            if end == FOREVER and not said and _clock() - began >= _QUIET:
                said = True  # else nobody would know what the program is waiting for
                log.warning("%s; trying again", error)
            await asyncio.sleep(pause)

    async def _address(self, timeout: Optional[float] = None) -> str:
        if not self._own:
            r = await self._call("GET", "/api/v1/whoami", timeout=timeout)
            own = r.json().get("mecha_id")
            if not isinstance(own, str):
                raise Unreachable("the answer is not from a relay: it names no Mecha")
            self._own = own
        return self._own

    async def _send(self, body: bytes, key: str, timeout: Optional[float], **how: Any) -> Sent:
        r = await self._call("POST", "/api/v1/messages", body, headers={"Idempotency-Key": key}, timeout=timeout, **how)
        a = r.json()
        try:
            return Sent(a["message_id"], a["conversation_id"], a["created_at"], a.get("recipient"),
                        r.headers.get("idempotent-replayed") == "true", a.get("message_ids") or [a["message_id"]])
        except KeyError as e:
            raise Unreachable("the answer is not from a relay: it lacks %s" % e) from e

    async def send(self, to: Recipient, payload: Payload, *, conversation: Optional[str] = None, type: Optional[str] = None,
                   in_reply_to: Optional[str] = None, ttl: Optional[int] = None, ack_by: Optional[int] = None,
                   max_messages: Optional[int] = None, priority: Optional[str] = None, correlation_id: Optional[str] = None,
                   idempotency_key: Optional[str] = None, timeout: Optional[float] = None) -> Sent:
        body = _envelope(to, payload, conversation=conversation, type=type, in_reply_to=in_reply_to, ttl=ttl, ack_by=ack_by,
                         max_messages=max_messages, priority=priority, correlation_id=correlation_id)
        return await self._send(body, _key(idempotency_key), timeout)

    async def ask(self, to: Recipient, payload: Payload, timeout: float = 60.0, *, idempotency_key: Optional[str] = None,
                  ack: bool = True, **more: Any) -> Message:
        address = _address_of(to)
        if address.startswith("*^"):
            raise ValueError("ask waits for one recipient, and %s is a crew" % address)
        end, key = _clock() + _seconds("timeout", timeout), _key(idempotency_key)
        mark = _question_mark(address, key)
        self._marks.put(mark)
        if not more.get("conversation") and not more.get("in_reply_to"):
            more["conversation"] = mark
        elif not more.get("correlation_id"):
            more["correlation_id"] = mark  # so that an answer to another question is not taken for this one's, either
        body = _envelope(to, payload, **more)
        question = _Question(address, more.get("conversation") or "", more.get("correlation_id") or "")
        self._questions.append(question)  # before it is sent: the answer may come before the 201
        try:
            sent = await self._send(body, key, timeout, slack=_SEND_SLACK)
            question.is_sent(sent)
            answer, why = await self._await_answer(sent, body, key, end)
            if answer is not None:
                self._answers.put(answer.id)
        finally:
            self._questions.remove(question)
            question.end()
        if answer is None:
            text, verdict = why or "no answer to %s within %g s" % (sent.message_id, timeout), await self._verdict(sent.message_id, end)
            raise NoAnswer((text + ". " + str(verdict.get("text", ""))).strip(), sent, verdict, key)
        if ack:
            acking = asyncio.ensure_future(self._acknowledge(answer))
            self._acks.add(acking)
            acking.add_done_callback(self._acks.discard)
            try:
                await asyncio.wait([acking], timeout=_ANSWER_ACK_WAIT)
            except asyncio.CancelledError:
                acking.cancel()  # the caller goes without the answer
                raise
        return answer

    async def _acknowledge(self, answer: Message) -> None:
        """Acknowledges an answer, behind ask: without that, a listener of another process gets it."""
        try:
            await self._repeat("POST", "/api/v1/messages/%s/ack" % _quote(answer.id), {"status": "completed", "client_ts": _timestamp()},
                               timeout=_ANSWER_ACK_FOR, limit=_ANSWER_ACK_ATTEMPT, closing=True)
            answer._settle("completed")
        except RelayError as e:
            log.warning("the answer %s is not acknowledged: %s", answer.id, e)
        except asyncio.CancelledError:
            log.warning("the answer %s is not acknowledged: the client was closed", answer.id)
            raise

    async def _await_answer(self, sent: Sent, body: bytes, key: str, end: float) -> Tuple[Optional[Message], str]:
        """Sends again with the same Idempotency-Key: that sends nothing, but has the relay hold the request until
        the answer is there. In between it looks whether the message has failed. The answer; or why there will be none."""
        hold, backoff, looked = 1, _Backoff(2), False
        while True:
            left = end - _clock()
            if left <= 0:
                return (None if looked else await self._last_look(body, key)), ""
            try:
                answer, held = await self._hold(body, key, math.ceil(max(1, min(hold, 60, left))), left)
                looked = True
                if answer is not None:
                    return answer, ""
                if not held:
                    await self._sleep(min(backoff.pause(), max(end - _clock(), 0)))
                hold, record = min(2 * hold, 60), (await self._call("GET", "/api/v1/messages/" + sent.message_id, timeout=max(end - _clock(), 0.1))).json()
                status = (record.get("ack") or {}).get("status")
                if record.get("state") == "expired" or status in ("failed", "rejected"):
                    answer, _ = await self._hold(body, key, 0, _NO_ANSWER_SLACK)  # one that was sent before the failure counts
                    return answer, "%s has no answer" % sent.message_id
            except RelayError as e:
                if not e.temporary:
                    raise
                if _clock() + 0.1 < end:
                    await self._sleep(min(backoff.pause(e), max(end - _clock(), 0)))

    async def _last_look(self, body: bytes, key: str) -> Optional[Message]:
        """The answer to a question that was asked before, if it is there: the time to wait for one is over."""
        try:
            return (await self._hold(body, key, 0, _NO_ANSWER_SLACK))[0]
        except RelayError as e:
            if not e.temporary:
                raise
            return None

    async def _hold(self, body: bytes, key: str, wait: int, timeout: float) -> Tuple[Optional[Message], bool]:
        """The answer, if it comes; and whether the relay could wait for it."""
        r = await self._call("POST", "/api/v1/messages", body, headers={"Idempotency-Key": key, "Prefer": "wait=%d" % wait},
                             timeout=timeout, hold=wait)
        answer = r.json()
        if "reply" not in answer:
            raise RelayError("no_wait", "the relay, or a proxy before it, does not know Prefer: wait, by which an answer is waited for", r.status)
        if answer["reply"] is None:
            return None, "preference-applied" in r.headers
        try:
            return Message(self, answer["reply"]), True
        except _Fault as e:
            raise Unreachable(str(e), temporary=False) from e

    async def _verdict(self, message_id: str, end: float) -> Dict[str, Any]:
        most = max(min(end + _NO_ANSWER_SLACK - _clock(), _NO_ANSWER_SLACK), 0.1)
        try:
            verdict = (await self._call("GET", "/api/v1/messages/%s/trace" % message_id, timeout=0, limit=most)).json().get("verdict")
        except RelayError:
            return {}
        return verdict if isinstance(verdict, dict) else {}

    def _question_of(self, m: Message) -> Optional[_Question]:
        """The question for whose ask a message may be."""
        return next((q for q in self._questions if q.may_have(m)), None)

    async def _is_answer(self, m: Message) -> bool:
        """Whether ask has taken the message: then it is not for a listener. While that is open, it waits: a question
        takes one answer, and further ones are for listeners."""
        while not self._answers.get(m.id):
            question = self._question_of(m)
            if question is None:
                return False
            await (question.over if question.id else question.known).wait()
        return True

    async def _is_pending(self, message_id: str) -> bool:
        try:
            record = (await self._call("GET", "/api/v1/messages/" + _quote(message_id))).json()
        except RelayError as e:
            if e.code in _NOT_PENDING:
                return False
            raise
        return record.get("state") in ("queued", "delivered")

    def listen(self, *, live: bool = True, claim: bool = False, lease: int = 60, worker: Optional[str] = None,
               state: Optional[str] = None, breaker: int = 30) -> Listener:
        return Listener(_Receiver(self, live, claim, lease, worker, state, breaker))

    async def find(self, query: str, limit: int = 10, online: Optional[bool] = None) -> List[Agent]:
        body: Dict[str, Any] = {"query": query, "limit": limit}
        if online is not None:
            body["filter"] = {"online": online}
        end = _clock() + self.timeout
        r = await self._call("POST", "/api/v1/search", body, headers={"Prefer": "wait=10"}, hold=10)
        found = r.json()
        while "results" not in found:
            if found.get("status") == "failed" or _clock() > end:
                raise RelayError("search_failed", "the search has no result", r.status)
            await self._sleep(0.2)
            found = (await self._call("GET", "/api/v1/search/" + _quote(str(found.get("request_id"))))).json()
        return [Agent(a["mecha_id"], _why(a.get("matched") or {}), bool(a.get("online")), a.get("last_seen"),
                      a.get("display_name") or "", a.get("description") or "", float(a.get("score") or 0),
                      str(found.get("request_id") or "")) for a in found["results"]]

    async def inbox(self) -> Dict[str, Any]:
        return (await self._call("GET", "/api/v1/mecha/%s/inbox" % _quote(await self._address()))).json()

    async def message(self, message_id: str) -> Message:
        path, own = "/api/v1/messages/" + _quote(message_id), await self._address()
        m = self._read((await self._call("GET", path)).json())
        if m.to == own:
            m.payload = (await self._call("GET", path + "/payload")).json()
        return m

    async def history(self, conversation: str, limit: int = 100) -> List[Message]:
        found: List[Message] = []
        cursor, more = "", True
        while more and len(found) < limit:
            page = (await self._call("GET", "/api/v1/conversations/%s/messages?order=desc&include=payload&limit=%d%s" % (
                _quote(conversation), min(limit - len(found), 1000), "&before_message_id=" + _quote(cursor) if cursor else ""))).json()
            found += [self._read(record) for record in page.get("messages") or []]
            cursor, more = page.get("next_cursor") or cursor, bool(page.get("has_more"))
        return found[::-1]

    def _read(self, record: Mapping[str, Any]) -> Message:
        try:
            return Message(self, record)
        except _Fault as e:
            raise Unreachable(str(e), temporary=False) from e

    async def whoami(self) -> Dict[str, Any]:
        return (await self._call("GET", "/api/v1/whoami")).json()

    async def publish(self, profile: Mapping[str, Any]) -> Dict[str, Any]:
        return (await self._call("PUT", "/api/v1/mecha/%s/profile" % _quote(await self._address()), dict(profile))).json()


def _why(matched: Mapping[str, Any]) -> str:
    why = " ".join(matched.get("terms") or [])
    if matched.get("fields"):
        why = (why + " in " + ", ".join(matched["fields"])).strip()
    return why + (" (skill %s)" % matched["skill_id"] if matched.get("skill_id") else "")


class SyncMessage(_Fields):
    """A message, with what can be done about it. Any thread may call the methods.

    If the message was claimed and its lease is over, they raise LeaseLost.
    """

    def __init__(self, relay: SyncRelay, core: Message) -> None:
        self._relay, self._core = relay, core
        self.__dict__.update((name, value) for name, value in core.__dict__.items() if not name.startswith("_"))

    @property
    def held(self) -> bool:
        """Whether this program may work on the message: False once the lease of a claim is lost. Long work looks now and then."""
        return self._core.held

    def ack(self, status: str = "completed", detail: Optional[str] = None, timeout: float = FOREVER) -> Dict[str, Any]:
        """Acknowledges the message. completed, failed and rejected end it; received and processing tell of progress.

        detail says why; the sender can read its first 1,024 bytes. By default it is tried again until
        the relay has it.
        """
        return self._relay._run(self._core.ack(status, detail, timeout))

    def reply(self, payload: Payload, type: str = "reply", idempotency_key: Optional[str] = None,
              timeout: float = FOREVER, **more: Any) -> Sent:
        """Sends an answer to the sender, in the same conversation. It does not end the message: ack does, or working.

        The Idempotency-Key is made of the message's id and of what the answer says: if the message is handled
        again, as after a crash before the ack, the same answer is sent once, and a different one is sent. more is as in SyncRelay.send.
        By default it is tried again until the relay has it or refuses it. Beyond the breaker of
        the listener the error is RelayError with the code breaker_open.
        """
        return self._relay._run(self._core.reply(payload, type, idempotency_key, timeout, **more))

    def defer(self, seconds: float, detail: Optional[str] = None, timeout: float = FOREVER) -> Dict[str, Any]:
        """Puts the message off: it comes again after so long, in whole seconds, with attempt one higher.

        Less than a second, also a negative number, counts as one: a moment that has just passed gives that.
        """
        return self._relay._run(self._core.defer(seconds, detail, timeout))

    def working(self, reraise: bool = False) -> _Working:
        """A context in which the message is worked on: "with m.working():".

        It acks processing, and at the end completed. If an exception ends it, it acks failed, with the
        text of the exception as the detail, which the sender can read; and it logs the exception and goes
        on behind the block, so that one bad message does not end a worker; with reraise it raises it.
        If the block has acked or deferred the message itself, nothing is added. If the program is
        ending (KeyboardInterrupt, SystemExit, cancellation), the message stays pending.

        The block does not run if there is nothing left to do: the error is LeaseLost, or RelayError with the code
        message_expired, already_acknowledged or message_not_found. In a loop that works on one message after the
        other, the listener acks processing itself, just before it gives a message out, and passes over such a one.
        """
        return _Working(self, reraise)

    def trace(self) -> Dict[str, Any]:
        """What happened to the message, as {"message": …, "steps": […], "verdict": {…}}."""
        return self._relay._run(self._core.trace())


class _Working:
    def __init__(self, message: SyncMessage, reraise: bool) -> None:
        self.message, self.core = message, _AsyncWorking(message._core, reraise)

    def __enter__(self) -> SyncMessage:
        self.message._relay._run(self.core.__aenter__())
        return self.message

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Any) -> bool:
        if error is not None and (self.message._relay._core._closed or not isinstance(error, Exception)):
            return False
        return self.message._relay._run(self.core.__aexit__(kind, error, trace))


class SyncListener:
    """The messages for a Mecha, as an iterator; SyncRelay.listen makes it. Several threads may take from it. It ends
    with close, with its relay, and when the program lets go of it, as by break."""

    def __init__(self, relay: SyncRelay, receiver: _Receiver) -> None:
        self._relay, self._receiver = relay, receiver

    def __iter__(self) -> SyncListener:
        return self

    def __next__(self) -> SyncMessage:
        given: List[Message] = []
        try:
            message = self._relay._run(self._receiver.next(given))
        except BaseException as e:
            if self._relay._core._closed and isinstance(e, RelayError):
                raise StopIteration from None
            self._relay._later(self._receiver.put_back, given)  # as after KeyboardInterrupt: the caller goes without it
            raise
        if message is None:
            raise StopIteration
        return SyncMessage(self._relay, message)

    def close(self) -> None:
        """Ends the iteration, also while another thread waits. Messages that were not acknowledged stay pending."""
        try:
            self._relay._run(self._receiver.close())
        except RelayError:
            pass  # the relay was closed, and with it this

    def __del__(self) -> None:
        self._receiver.dropped()


class SyncRelay:
    """A relay, as one Mecha. Any thread may call the methods; close it, or use it in with.

    url: RELAY_URL, else http://127.0.0.1:8080. key: RELAY_KEY, or the file that RELAY_KEY_FILE names.
    signing_secret: RELAY_SIGNING_SECRET, or the file RELAY_SIGNING_SECRET_FILE, if the key was made with one.
    ca_file: RELAY_CA_FILE, certificates to trust beside the system's. What cannot be used is a ValueError.
    timeout: the seconds for which a request is tried again, if it is given none of its own.

    A refusal raises RelayError, no answer Unreachable, which is one, too. What can heal is tried again
    first: faults of the network, 408, 429 and 5xx, with pauses of at least Retry-After.
    """

    def __init__(self, url: Optional[str] = None, key: Optional[str] = None, signing_secret: Optional[str] = None,
                 ca_file: Optional[str] = None, timeout: float = 60.0) -> None:
        self._core = Relay(url, key, signing_secret, ca_file, timeout)
        self._lock = threading.RLock()  # a handler of signals may call close
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        self._thread: Optional[threading.Thread] = None
        self._process = 0
        self._finalizer: Optional[Callable[[], Any]] = None

    def __enter__(self) -> SyncRelay:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Ends listeners, and the calls of other threads, whatever they wait for: their error is RelayError with the code
        closed. Messages that were not acknowledged stay pending. The acks of answers that ask has returned have ten seconds."""
        with self._lock:
            self._core._closed = True
            if self._finalizer is not None:
                self._finalizer()

    def _run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Runs a coroutine in the thread of this relay."""
        with self._lock:
            if self._core._closed:
                work.close()
                raise _closed()
            if self._loop is None:
                loop, self._process = asyncio.new_event_loop(), os.getpid()
                thread = threading.Thread(target=_serve, args=(loop,), name="relay_client", daemon=True)
                thread.start()
                self._loop, self._thread = loop, thread
                self._finalizer = weakref.finalize(self, _stop, self._core, loop, thread)
            if self._thread is threading.current_thread() or self._process != os.getpid():
                work.close()  # it would wait forever
                raise RuntimeError("a SyncRelay cannot be used by its own thread, as in a handler of logging, nor after a fork: make another one")
            try:
                future = asyncio.run_coroutine_threadsafe(work, self._loop)
            except RuntimeError:  # closed meanwhile
                work.close()
                raise _closed() from None
        try:
            while os.name == "nt" and not concurrent.futures.wait([future], 0.5).done:
                pass  # Ctrl-C does not wake a thread that waits, on Windows
            return future.result()
        except concurrent.futures.CancelledError:
            raise _closed() from None
        except BaseException:
            future.cancel()
            raise

    def _later(self, work: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
        """Has the thread of this relay do something for which nobody waits."""
        try:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(lambda: self._core._spawn(work(*args)))
        except RuntimeError:
            pass  # it has ended

    def send(self, to: Recipient, payload: Payload, *, conversation: Optional[str] = None, type: Optional[str] = None,
             in_reply_to: Optional[str] = None, ttl: Optional[int] = None, ack_by: Optional[int] = None,
             max_messages: Optional[int] = None, priority: Optional[str] = None, correlation_id: Optional[str] = None,
             idempotency_key: Optional[str] = None, timeout: Optional[float] = None) -> Sent:
        """Sends a message to an address, to an Agent that find gave, or to a crew ("*^acme"). It is on the relay's disk when this returns.

        payload: a dict, or the bytes of a JSON object in UTF-8, which are sent as they are. What is none is a ValueError.
        conversation: its id, or a word of your own; by default a new one. in_reply_to: the message that this one answers.
        ttl: the message expires after so many seconds. ack_by: the relay tells the sender if it is not
        acknowledged after so many. max_messages: how many the conversation may hold that this one begins.
        idempotency_key: within 24 hours, the same message with the same key is sent once, whichever
        process sends it. By default each call makes one, which its attempts share. It has 1 to 128 printable ASCII characters.
        timeout: the seconds for which it is tried again; then the last error is raised. 0: it is tried once. FOREVER
        (math.inf): without an end. Here as everywhere, what is no number of seconds, is negative or NaN is a ValueError.
        """
        return self._run(self._core.send(
            to, payload, conversation=conversation, type=type, in_reply_to=in_reply_to, ttl=ttl, ack_by=ack_by, max_messages=max_messages,
            priority=priority, correlation_id=correlation_id, idempotency_key=idempotency_key, timeout=timeout))

    def ask(self, to: Recipient, payload: Payload, timeout: float = 60.0, *, idempotency_key: Optional[str] = None,
            ack: bool = True, **more: Any) -> SyncMessage:
        """Sends a message, waits for its answer, acknowledges that as completed and returns it.

        It waits for the ack for a second at most. Then the ack goes on in the background: for a minute, and after close for
        ten seconds at most. NoAnswer may come seven seconds after the timeout: then it looks a last time, and asks for the reason.
        It goes on while the relay is away. If there is no answer in time, or the recipient has failed, the
        error is NoAnswer, with the relay's verdict; if it could not be sent, that of send. more is as in send. A listener
        of the same SyncRelay does not get the answer, and one of another process leaves it to this one for some seconds. The
        question is marked for that: conversation, or if that or in_reply_to is given, correlation_id begins with "ask-". A wait counts as a socket of the Mecha, of which a relay allows 16 by default: ask no more at once.
        """
        return SyncMessage(self, self._run(self._core.ask(to, payload, timeout, idempotency_key=idempotency_key, ack=ack, **more)))

    def listen(self, *, live: bool = True, claim: bool = False, lease: int = 60, worker: Optional[str] = None,
               state: Optional[str] = None, breaker: int = 30) -> SyncListener:
        """The messages for this Mecha, oldest pending first, until the listener or the relay is closed.

        It connects again after every loss, forever, and goes on where it was; it ends with RelayError if
        the relay refuses for good, as when the key is revoked. A message that comes again while it is in
        hand, or after it was done, is passed over. Acknowledge each message, best by m.working():
        what is not acknowledged comes again to the next listener.

        live: by a WebSocket; where none can be had, and with False, by long-polls. Over these, a message that
        was deferred comes again at once if the program is started again.
        claim: each message goes to one of several workers that claim. It is held for lease seconds, and
        renewed while the program has it in hand and has not ended it. worker names this one in traces.
        state: a file that keeps the place, for one listener that reads and does not acknowledge. The place moves when
        the next message is asked for; take the messages in one thread.
        breaker: how many answers (m.reply) it sends in a conversation in ten minutes. Messages beyond that are acked failed,
        and not given out, so that two agents do not answer each other forever. 0 or less: any number. What is no whole number is a ValueError.
        """
        return SyncListener(self, _Receiver(self._core, live, claim, lease, worker, state, breaker))

    def find(self, query: str, limit: int = 10, online: Optional[bool] = None) -> List[Agent]:
        """Mechas by what their profiles say they can do, best first. online: only those that are, or are not, connected."""
        return self._run(self._core.find(query, limit, online))

    def inbox(self) -> Dict[str, Any]:
        """How much is pending: {"pending": 2, "oldest_message_id": …, "newest_message_id": …, "by_priority": {…}}."""
        return self._run(self._core.inbox())

    def message(self, message_id: str) -> SyncMessage:
        """A message that this Mecha has sent or received; with its payload, if it has received it."""
        return SyncMessage(self, self._run(self._core.message(message_id)))

    def history(self, conversation: str, limit: int = 100) -> List[SyncMessage]:
        """The latest messages of a conversation that this Mecha has sent or received, oldest first."""
        return [SyncMessage(self, m) for m in self._run(self._core.history(conversation, limit))]

    def whoami(self) -> Dict[str, Any]:
        """Whose key this is: {"mecha_id": …, "expires_at": …, "server_time": …}."""
        return self._run(self._core.whoami())

    def publish(self, profile: Mapping[str, Any]) -> Dict[str, Any]:
        """Replaces this Mecha's profile, by which others find it, as {"description": …, "tags": […], "skills": […]}."""
        return self._run(self._core.publish(profile))


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    """Runs the event loop of a SyncRelay, until _stop."""
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        loop.run_until_complete(_end_others())
        loop.run_until_complete(asyncio.sleep(0.01))  # connections that were aborted are let go of
    finally:
        asyncio.set_event_loop(None)
        loop.close()


async def _end_others() -> None:
    """Ends all other tasks of this loop, those that begin meanwhile included."""
    while True:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if not others:
            return
        await _end(others)  # type: ignore[arg-type]


def _stop(core: Relay, loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    async def end() -> None:
        try:
            await core.close()
        finally:
            loop.stop()

    def begin() -> None:
        core._ending = asyncio.ensure_future(end())  # type: ignore[attr-defined]

    if not loop.is_closed():
        loop.call_soon_threadsafe(begin)
    if threading.current_thread() is not thread:
        thread.join(_GRACE + 5)
