"""Checks relay_client.py against a relay that runs: RELAY_URL, and in KEYS a list of {mecha_id, key,
signing_secret} of Mechas of the crew py, of which each test takes its own. The last but one has a
signing secret, the last a revoked key. VECTOR is the test vector of the page "signing". MOMENTS is how many
moments are tried for what may happen at any."""

import asyncio
import contextlib
import gc
import hashlib
import json
import logging
import math
import os
import random
import socket
import sys
import tempfile
import threading
import unittest
import time
import warnings
from unittest import mock

import relay_client
from relay_client import LeaseLost, NoAnswer, Relay, RelayError, SyncRelay, Unreachable

KEYS = json.loads(os.environ["KEYS"])
MOMENTS = int(os.environ["MOMENTS"])
PATIENCE = 120  # seconds for what a slow machine does at some time
WITH_SECRET, REVOKED = KEYS[-2], KEYS[-1]
unused = iter(KEYS[96:-2] if "Patient" in sys.argv else KEYS[:96])  # two programs run side by side
logging.getLogger("relay_client").addHandler(logging.NullHandler())


def relay_of(mecha, kind=SyncRelay):
    r = kind(key=mecha["key"], signing_secret=mecha["signing_secret"] or "")
    r.name = mecha["mecha_id"]
    return r


async def no_answer(ask, to, payload, timeout, **how):
    """The NoAnswer of a question, with the reason. If a busy machine needs two seconds more than timeout to send the question, ask
    raises Unreachable; if it needs five for the reason, there is none. The next attempt then has twice the time."""
    for longer in (1, 2, 4, 8, 16, 32):
        try:
            answer = await ask(to, payload, timeout=timeout * longer, **how)
        except Unreachable as e:
            error = e
        except NoAnswer as e:
            if e.verdict:
                return e
            error = e
        else:
            raise AssertionError("there is an answer: %s" % answer.payload)
    raise error


class Case(unittest.TestCase):
    def mecha(self):
        r = relay_of(next(unused))
        self.addCleanup(r.close)
        return r

    def pair(self):
        return self.mecha(), self.mecha()

    def beside(self, work):
        """Runs work in a thread, which must end by the end of the test."""
        thread = threading.Thread(target=work)
        thread.start()
        self.addCleanup(thread.join)
        return thread

    def until(self, condition):
        end = time.monotonic() + PATIENCE
        while not condition():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)

    def code(self, code, call, *args, **more):
        with self.assertRaises(RelayError) as caught:
            call(*args, **more)
        self.assertEqual(caught.exception.code, code)
        return caught.exception


def answer_all(relay, n, **how):
    """Answers n messages."""
    listener = relay.listen(**how)
    for _ in range(n):
        m = next(listener)
        with m.working():
            m.reply({"echo": m.payload})
    listener.close()


class Signing(unittest.TestCase):
    def test_the_vector_of_the_documentation(self):
        v = json.loads(os.environ["VECTOR"])
        body = v["body"].encode()
        self.assertEqual(relay_client.sign(v["key"], body, v["nonce"], v["timestamp"]), v["signature"])
        self.assertEqual(relay_client.sign_request(v["key"], v["method"], v["path"], body, v["nonce"], v["timestamp"]), v["request signature"])

    def test_what_cannot_be_used(self):
        for more in ({"url": "127.0.0.1:8080"}, {"url": "ftp://x"}, {"url": "http://"}, {"url": "http://[::1/"}, {"key": ""}, {"key": "mk_ü"}, {"key": "mk_1\nX-Nonce: 1"}):
            with self.assertRaises(ValueError) as caught:
                SyncRelay(**{"key": "mk_1", **more})
            self.assertNotIn("mk_1", str(caught.exception))


    def test_secrets_in_files(self):
        with tempfile.TemporaryDirectory() as folder:
            files = {name: os.path.join(folder, name) for name in ("key", "secret", "binary", "none")}
            for name, text in (("key", b"mk_file\n"), ("secret", b" ms_file\n"), ("binary", b"\xff")):
                with open(files[name], "wb") as f:
                    f.write(text)
            env = {"RELAY_KEY": "mk_env", "RELAY_KEY_FILE": files["key"], "RELAY_SIGNING_SECRET_FILE": files["secret"]}
            with mock.patch.dict(os.environ, env):
                for given, want in (({}, ("mk_file", "ms_file")), ({"key": "mk_given"}, ("mk_given", "ms_file")), ({"signing_secret": ""}, ("mk_file", "mk_file"))):
                    transport = SyncRelay(**given)._core._transport
                    self.assertEqual((transport.key, transport.secret), want)
            for name in ("none", "binary"):
                with mock.patch.dict(os.environ, {"RELAY_KEY_FILE": files[name]}):
                    self.assertRaisesRegex(ValueError, "RELAY_KEY_FILE: .*%s cannot be read" % name, SyncRelay)
            self.assertRaisesRegex(ValueError, "RELAY_CA_FILE", SyncRelay, "https://127.0.0.1:1", "mk_1", ca_file=files["none"])
            self.assertRaisesRegex(ValueError, "RELAY_CA_FILE", SyncRelay, "https://127.0.0.1:1", "mk_1", ca_file=files["key"])


class Calls(Case):
    def test_a_question_and_its_answer(self):
        alice, bob = self.pair()
        bob.publish({"description": "books flights to Lisbon", "skills": [{"id": "book", "name": "Book a flight"}]})
        answering = self.beside(lambda: answer_all(bob, 2))
        answer = alice.ask(bob.name, {"to": "LIS", "größe": [1, 2.5, None]})
        self.assertEqual(answer.payload, {"echo": {"to": "LIS", "größe": [1, 2.5, None]}})
        self.assertEqual((answer.sender, answer.type, answer.attempt), (bob.name, "reply", 1))
        again = alice.ask(bob.name, {"and": "then"}, conversation=answer.conversation_id)
        self.assertEqual(again.conversation_id, answer.conversation_id)
        answering.join()
        self.assertLess(answer.sent_at, again.sent_at)
        self.assertEqual(alice.inbox()["pending"], 0)  # ask has acknowledged the answers
        history = bob.history(answer.conversation_id)
        self.assertEqual([m.payload for m in history if m.sender == alice.name], [{"to": "LIS", "größe": [1, 2.5, None]}, {"and": "then"}])
        self.assertEqual([m.status for m in history], ["completed"] * 4)
        self.assertEqual([m.id for m in history[-3:]], [m.id for m in bob.history(answer.conversation_id, limit=3)])
        question = bob.message(history[0].id)
        self.assertTrue(question.signed)
        self.assertEqual(question.payload["to"], "LIS")
        self.assertIsNone(alice.message(history[0].id).payload)
        self.assertEqual(question.trace()["verdict"]["code"], "answered")
        found = []

        def is_found():  # the search follows publish in its own time
            found[:] = [a for a in alice.find("book a flight to lisbon") if a.address == bob.name]
            return found
        self.until(is_found)
        self.assertEqual([a.online for a in found], [found[0].online])
        self.assertIn("flight", found[0].why)
        self.assertIn(b'"search_id":"srch_', relay_client._envelope(found[0], {}))
        self.assertEqual(alice.message(alice.send(found[0], {}).message_id).to, bob.name)  # the relay would refuse a wrong search_id

    def test_sending(self):
        alice, bob = self.pair()
        sent = alice.send(bob.name, {"n": 1}, type="order", ttl=3600, ack_by=60, max_messages=2, priority="high", correlation_id="c", idempotency_key="k")
        self.assertFalse(sent.replayed)
        self.assertEqual(sent.recipient["pending"], 0)
        again = alice.send(bob.name, {"n": 1}, type="order", ttl=3600, ack_by=60, max_messages=2, priority="high", correlation_id="c", idempotency_key="k")
        self.assertEqual((again.message_id, again.replayed), (sent.message_id, True))
        m = bob.message(sent.message_id)
        self.assertEqual((m.type, m.priority, m.correlation_id, m.state), ("order", "high", "c", "queued"))
        self.code("idempotency_key_reused", alice.send, bob.name, {"n": 2}, idempotency_key="k")
        alice.send(bob.name, b'{ "n":  3 }', conversation=sent.conversation_id)
        self.code("conversation_full", alice.send, bob.name, {}, conversation=sent.conversation_id)
        for payload in ([1], "x", None):
            self.assertRaises(TypeError, alice.send, bob.name, payload)
        self.assertRaises(ValueError, alice.send, bob.name, {"n": float("nan")})
        self.assertRaises(ValueError, alice.send, bob.name, {}, idempotency_key="ü")
        self.code("broadcast_not_allowed", alice.send, "*^elsewhere", {})

    def test_an_idempotency_key_is_a_text(self):
        alice, bob = self.pair()
        sent = alice.send(bob.name, {})
        m = bob.message(sent.message_id)
        for wrong in ("", " k", "k" * 129, "ü", "k\nX-Nonce: 1", 17):
            for call in (alice.send, alice.ask, lambda _, payload, **more: m.reply(payload, **more)):
                self.assertRaisesRegex(ValueError, "idempotency_key must have 1 to 128", call, bob.name, {}, idempotency_key=wrong)
        self.assertEqual((bob.inbox()["pending"], alice.inbox()["pending"]), (1, 0))

    def test_an_address_is_a_text(self):
        alice = self.mecha()
        for wrong in (None, 17, b"bob^py", ["bob^py"]):
            for call in (alice.send, alice.ask):
                self.assertRaisesRegex(TypeError, "^to must be the address of a Mecha", call, wrong, {})

    def test_a_question_that_is_repeated_has_the_same_answer(self):
        alice, bob = self.pair()
        with self.assertRaises(NoAnswer) as caught:
            alice.ask(bob.name, {}, timeout=0, idempotency_key="k")
        answer = bob.message(caught.exception.message_id).reply({"n": 1})
        with next(alice.listen()).working() as m:  # it comes too late for ask, so the listener handles it
            self.assertEqual(m.id, answer.message_id)
        self.assertEqual([alice.ask(bob.name, {}, timeout=timeout, idempotency_key="k").id for timeout in (30, 0)], [answer.message_id] * 2)

    def test_refusals(self):
        alice, bob = self.pair()
        e = self.code("recipient_not_found", alice.send, bob.name.replace("^", "x^"), {})
        self.assertIn(bob.name, e.did_you_mean)
        self.assertEqual((e.status, e.temporary, e.retry_after), (404, False, None))
        self.assertTrue(e.request_id and e.detail in str(e))
        e = self.code("key_revoked", relay_of(REVOKED).whoami)
        self.assertEqual(e.status, 401)
        with relay_of(REVOKED) as r:
            self.code("key_revoked", next, r.listen())
            self.code("key_revoked", next, r.listen(claim=True))
            self.code("key_revoked", next, r.listen(live=False))
        self.code("message_not_found", alice.message, "msg_é?x")
        with SyncRelay(url="http://127.0.0.1:1", key="mk_1", timeout=0.4) as nowhere:
            e = self.code("unreachable", nowhere.send, bob.name, {})
            self.assertTrue(isinstance(e, Unreachable) and e.temporary)

    def test_no_answer(self):
        alice, bob = self.pair()

        def ask(*args, **how):
            return asyncio.to_thread(alice.ask, *args, **how)
        e = asyncio.run(no_answer(ask, bob.name, {"n": 1}, 0.3))
        self.assertEqual((e.code, e.verdict["code"]), ("no_answer", "never_connected"))
        self.assertIn(bob.name, str(e))
        # To ask again with the same key goes on waiting.
        answering = self.beside(lambda: answer_all(bob, 1))
        self.assertEqual(alice.ask(bob.name, {"n": 1}, idempotency_key=e.idempotency_key).payload, {"echo": {"n": 1}})

        answering.join()

        def refuse():
            next(bob.listen()).ack("rejected", "not today")
        self.beside(refuse)
        # On a busy machine a refusal may take long. Before it, the verdict is "pushed".
        e = asyncio.run(no_answer(ask, bob.name, {"n": 2}, 600, idempotency_key="n 2"))
        self.assertEqual(e.verdict["code"], "rejected")
        self.assertIn("not today", str(e))
        self.assertRaises(ValueError, alice.ask, "*^py", {})

    def test_the_thread_of_a_relay_cannot_wait_for_itself(self):
        bob, errors = self.mecha(), []
        bob.whoami()

        def inside():
            try:
                bob.whoami()
            except RuntimeError as e:
                errors.append(str(e))
        bob._loop.call_soon_threadsafe(inside)
        self.until(lambda: errors)
        self.assertIn("its own thread", errors[0])

    def test_a_signing_secret(self):
        with relay_of(WITH_SECRET) as carol:
            sent = carol.send(carol.name, {"to": "myself"})
            self.assertTrue(carol.message(sent.message_id).signed)
        with SyncRelay(key=WITH_SECRET["key"]) as wrong:
            self.code("invalid_signature", wrong.whoami)


class Listening(Case):
    def test_what_becomes_of_a_message(self):
        alice, bob = self.pair()
        listener = bob.listen()
        sent = [alice.send(bob.name, {"n": n}).message_id for n in range(5)]
        with self.assertLogs("relay_client", "ERROR"), next(listener).working():
            raise ValueError("n must be positive" + "ä" * 2000)
        with next(listener).working() as m:
            m.ack("rejected", "no")
        with self.assertRaises(KeyboardInterrupt), next(listener).working():
            raise KeyboardInterrupt
        with self.assertRaises(KeyError), next(listener).working(reraise=True):
            raise KeyError("n")
        m = next(listener)
        with m.working():
            self.assertEqual(bob.message(m.id).status, "processing")
        got = [alice.message(i) for i in sent]
        self.assertEqual([m.status for m in got], ["failed", "rejected", "processing", "failed", "completed"])
        self.assertTrue(got[0].detail.startswith("n must be positiveä") and len(got[0].detail.encode()) <= 1024)
        self.code("already_acknowledged", m.ack, "failed")
        # The one that was left is for the next listener.
        self.assertEqual(next(bob.listen()).id, sent[2])

    def test_an_answer_that_fails_keeps_its_number(self):
        alice, bob = self.pair()
        alice.send(bob.name, {})
        m = next(bob.listen())
        self.code("invalid_request", m.reply, {}, priority="x" * 99)
        first = m.reply({"n": 1})
        self.assertEqual(next(bob.listen()).reply({"n": 1}).message_id, first.message_id)

    def test_an_answer_is_sent_once(self):
        alice, bob = self.pair()
        question = alice.send(bob.name, {})
        first = next(bob.listen()).reply({"n": 1})
        again = next(bob.listen())  # as after a crash before the ack
        self.assertEqual((again.reply({"n": 1}).message_id, again.reply({"more": 2}).replayed), (first.message_id, False))
        other = next(bob.listen())  # another program answers another thing: that is sent, too
        self.assertFalse(other.reply({"n": 3}).replayed)
        self.assertEqual([r.replayed for r in (other.reply({"n": 1}), other.reply({"n": 1}))], [True, False])
        self.assertEqual([m.payload for m in alice.history(question.conversation_id)][1:], [{"n": 1}, {"more": 2}, {"n": 3}, {"n": 1}])
        other.reply({"n": 4}, idempotency_key="k")
        self.code("idempotency_key_reused", other.reply, {"n": 5}, idempotency_key="k")

    def test_a_block_runs_only_for_what_is_pending(self):
        for how in ({}, {"claim": True}, {"live": False}):
            alice, bob = self.pair()
            listener, worked = bob.listen(**how), []
            sent = [alice.send(bob.name, {"n": n}).message_id for n in range(4)]
            first = next(listener)
            bob.message(first.id).ack()
            with self.assertRaises(RelayError) as caught, first.working():
                worked.append(0)
            self.assertEqual((caught.exception.code, worked), ("already_acknowledged", []))
            with next(listener).working() as m:
                worked.append(m.payload["n"])
            if not how.get("claim"):
                self.until(lambda: len(listener._receiver._queue.items) == 2)
            bob.message(sent[2]).ack("rejected")  # by another program, while it waits here
            with self.assertLogs("relay_client", "WARNING") if not how.get("claim") else contextlib.nullcontext():
                m = next(listener)
            with m.working():
                worked.append(m.payload["n"])
            self.assertEqual(worked, [1, 3])
            self.assertEqual([alice.message(i).status for i in sent], ["completed", "completed", "rejected", "completed"])
            listener.close()
        alice.send(bob.name, {})
        m = next(bob.listen(claim=True))
        m._core._lost = "another worker has it"
        with self.assertRaises(LeaseLost), m.working():
            self.fail("another worker has it")

    def test_an_exception_without_a_text(self):
        class Silent(Exception):
            def __str__(self):
                raise ValueError("no text")
        alice, bob = self.pair()
        sent = alice.send(bob.name, {})
        with self.assertLogs("relay_client", "ERROR"), next(bob.listen()).working():
            raise Silent
        m = alice.message(sent.message_id)
        self.assertEqual((m.status, m.detail), ("failed", "Silent, whose text cannot be read"))

    def test_a_message_that_is_too_long(self):
        alice, bob = self.pair()
        self.code("payload_too_large", alice.send, bob.name, {"x": "x" * (5 << 20)}, timeout=math.inf)
        sent = alice.send(bob.name, {"x": "x" * 900_000})
        with self.assertLogs("relay_client", "ERROR"), next(bob.listen()).working() as m:
            m.reply({"x": "x" * (30 << 20)})
        self.assertEqual(alice.message(sent.message_id).status, "failed")

    def test_the_breaker(self):
        alice, bob = self.pair()
        sent = alice.send(bob.name, {"n": 0})
        rest = [alice.send(bob.name, {"n": n}, conversation=sent.conversation_id).message_id for n in range(1, 5)]
        other = alice.send(bob.name, {"other": 1})
        listener = bob.listen(breaker=3)
        for _ in range(3):
            with next(listener).working() as m:
                m.reply({})
        with self.assertLogs("relay_client", "WARNING"):
            m = next(listener)
        self.assertEqual(m.id, other.message_id)
        self.assertEqual([alice.message(i).status for i in rest], ["completed", "completed", "failed", "failed"])
        self.assertIn("3 automatic answers", alice.message(rest[3]).detail)
        bob.message(rest[0]).reply({"by": "hand"})

    def test_a_breaker_is_a_whole_number(self):
        alice, bob = self.pair()
        for wrong in (None, "x", math.nan, math.inf, 1.5):
            self.assertRaisesRegex(ValueError, "breaker must be a whole number", bob.listen, breaker=wrong)
        sent = alice.send(bob.name, {})
        with next(bob.listen(breaker=-1)).working() as m:
            m.reply({})
        self.assertEqual(alice.message(sent.message_id).status, "completed")

    def test_claims(self):
        alice, bob = self.pair()
        second = SyncRelay(key=bob._core._transport.key)
        self.addCleanup(second.close)
        got, lock = [], threading.Lock()
        for worker in (bob, second):
            listener = worker.listen(claim=True, worker="w")

            def work(listener=listener):
                for m in listener:
                    with m.working():
                        with lock:
                            got.append(m.payload["n"])
                        m.reply({})
            self.beside(work)
            self.addCleanup(listener.close)
        for n in range(40):
            alice.send(bob.name, {"n": n})
        while alice.inbox()["pending"] < 40:
            threading.Event().wait(0.02)
        self.assertEqual(sorted(got), list(range(40)))

    def test_the_place_is_kept(self):
        alice, bob = self.pair()
        with tempfile.TemporaryDirectory() as folder:
            place = os.path.join(folder, "place")
            for n in range(6):
                alice.send(bob.name, {"n": n})
            for how, want in (({}, [0, 1]), ({"live": False}, [1, 2, 3]), ({}, [3, 4, 5])):
                listener = bob.listen(state=place, **how)
                self.assertEqual([next(listener).payload["n"] for _ in want], want)
                listener.close()
            self.assertRaises(ValueError, next, alice.listen(state=place))  # it is bob's

    def test_payloads_that_are_hard_to_read(self):
        for live in (True, False):
            alice, bob = self.pair()
            listener = bob.listen(live=live)
            for payload in (b'{"n":' + b"9" * 5000 + b"}", b'{"n":' + b"[" * 62 + b"]" * 62 + b"}", b'{"n":1e999,"n":-0}', b'{"":"\\u0000"}',
                            b'{"big":"' + b"x" * 1_000_000 + b'"}'):
                sent = alice.send(bob.name, payload)
                with next(listener).working() as m:
                    self.assertEqual((m.id, type(m.payload)), (sent.message_id, dict))

    def test_answers_to_questions_are_not_for_the_listener(self):
        alice, bob = self.pair()
        heard = []
        listener = alice.listen()
        self.beside(lambda: heard.extend(m.payload for m in listener))
        self.beside(lambda: answer_all(bob, 30))
        for n in range(30):
            self.assertEqual(alice.ask(bob.name, {"n": n}).payload, {"echo": {"n": n}})
        bob.send(alice.name, {"last": True})
        while not heard:
            threading.Event().wait(0.02)
        listener.close()
        self.assertEqual(heard, [{"last": True}])

    def test_a_listener_that_is_dropped_ends(self):
        alice, bob = self.pair()
        alice.send(bob.name, {"n": 1})
        for how in ({}, {"live": False}, {"claim": True}):
            for m in bob.listen(**how):
                receiver = m._core._listener
                break
            self.until(lambda: receiver._done)
        self.assertEqual(m.ack()["status"], "completed")

    def test_a_message_that_nobody_took_is_put_back(self):
        alice, bob = self.pair()
        for how in ({}, {"claim": True}):
            listener, given = bob.listen(**how), []
            alice.send(bob.name, how)
            bob._run(listener._receiver.next(given))  # then a KeyboardInterrupt comes
            bob._later(listener._receiver.put_back, given)
            m = next(listener)
            self.assertEqual((m.id, m.payload), (given[0].id, how))
            m.ack()

    def test_closing_ends_what_waits(self):
        for how in ({}, {"live": False}, {"claim": True}):
            for n in range(MOMENTS):
                bob = relay_of(KEYS[0])
                listener, ended = bob.listen(**how), []
                threads = [threading.Thread(target=lambda: ended.append(list(listener))) for _ in range(1 + n % 2)]
                for thread in threads:
                    thread.start()
                time.sleep(random.random() * 0.03)
                closing = threading.Thread(target=listener.close if n % 3 else bob.close, daemon=True)
                closing.start()
                for thread in [closing] + threads:
                    thread.join(30)
                self.assertEqual(ended, [[]] * len(threads), how)
                self.assertFalse(closing.is_alive(), how)
                bob.close()
        self.code("closed", bob.whoami)
        self.assertEqual(list(bob.listen()), [])


class Silence:
    """A relay that says nothing more at some stage."""

    def __init__(self, answers):
        self.answers, self.server, self.taken = answers, socket.create_server(("127.0.0.1", 0)), []
        self.lock, self.closed = threading.Lock(), False
        self.address = "127.0.0.1:%d" % self.server.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                client, _ = self.server.accept()
            except OSError:
                return
            with self.lock:
                if self.closed:  # an accept that has begun may take one more
                    client.close()
                    return
                self.taken.append(client)
            threading.Thread(target=self.answer, args=(client,), daemon=True).start()

    def answer(self, client):
        text = b""
        while True:
            try:
                data = client.recv(1 << 16)
            except OSError:
                return
            if not data:
                return
            text += data
            if b"/whoami" in text and self.answers:
                text = b""
                body = b'{"mecha_id":"bob^py"}'
                client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    def close(self):
        with self.lock:
            self.closed = True
            for s in [self.server] + self.taken:
                s.close()


class LongBodies(Case):
    """A long body is sent once the relay wants it. A proxy may refuse that, or not know it."""

    def sent_through(self, refuses):
        """What a proxy gets: for each request, whether it asked for leave, and its body."""
        got, server = [], socket.create_server(("127.0.0.1", 0))
        self.addCleanup(server.close)
        server.settimeout(60)

        def serve():
            while len(got) < 1 + refuses:
                client, _ = server.accept()
                with client, client.makefile("rb") as stream:
                    head = b"".join(iter(stream.readline, b"\r\n")).lower()
                    asks, size = b"expect: 100-continue" in head, int(head.split(b"content-length: ")[1].split()[0])
                    if asks and refuses:
                        got.append((asks, b""))
                        client.sendall(b"HTTP/1.1 417 Expectation Failed\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                        continue
                    got.append((asks, stream.read(size)))
                    answer = b'{"message_id":"msg_1","conversation_id":"conv_1","created_at":"2026-01-01T00:00:00Z"}'
                    client.sendall(b"HTTP/1.1 201 Created\r\nContent-Length: %d\r\n\r\n%s" % (len(answer), answer))
        thread = self.beside(serve)
        with SyncRelay("http://127.0.0.1:%d" % server.getsockname()[1], "mk_1") as relay:
            self.assertEqual(relay.send("bob^py", {"x": "x" * 300_000}).message_id, "msg_1")
        thread.join(PATIENCE)
        return [(asks, len(body) > 300_000) for asks, body in got]

    def test_a_proxy_that_refuses_to_be_asked(self):
        self.assertEqual(self.sent_through(True), [(True, False), (False, True)])

    def test_a_proxy_that_gives_no_leave(self):
        self.assertEqual(self.sent_through(False), [(True, True)])


class Stalled(Case):
    """close ends every call, whatever it waits for."""

    def ends(self, url, reached):
        for what in ("listen", "poll", "claim", "ask", "send", "inbox"):
            relay, ended = SyncRelay(url, "mk_1"), []

            def call():
                listener = relay.listen(live=what != "poll", claim=what == "claim")
                calls = {"ask": lambda: relay.ask("bob^py", {}), "send": lambda: relay.send("bob^py", {}), "inbox": relay.inbox}
                try:
                    ended.append(calls[what]() if what in calls else list(listener))
                except RelayError as e:
                    ended.append(e.code)
            thread = threading.Thread(target=call, daemon=True)
            thread.start()
            self.until(reached)
            closing = threading.Thread(target=relay.close, daemon=True)
            closing.start()
            closing.join(8)  # a close that gives up does so after 10 seconds
            thread.join(8)
            self.assertEqual((ended, closing.is_alive()), ([[]] if what in ("listen", "poll", "claim") else ["closed"], False), what)

    def test_when_nothing_is_answered(self):
        for answers in (False, True):
            silence = Silence(answers)
            self.addCleanup(silence.close)

            def reached(seen=[0]):
                if len(silence.taken) <= seen[0]:
                    return False
                seen[0] = len(silence.taken)
                return True
            self.ends("http://" + silence.address, reached)
            self.ends("https://" + silence.address, reached)

    def test_requests_of_other_tasks(self):
        silence = Silence(True)
        self.addCleanup(silence.close)

        async def main():
            relay = Relay("http://" + silence.address, "mk_1")
            calls = [asyncio.ensure_future(call) for call in (relay.send("bob^py", {}), relay.ask("bob^py", {}), relay.find("x"), relay.listen().__anext__())]
            while len(silence.taken) < len(calls):
                await asyncio.sleep(0.01)
            await relay.close()
            return await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 8)
        ended = asyncio.run(main())
        self.assertEqual([getattr(e, "code", type(e)) for e in ended], ["closed"] * 3 + [StopAsyncIteration])

    def test_a_listener_that_sees_first_that_its_relay_is_closed(self):
        for claim in (False, True):
            relay, ended = SyncRelay("http://127.0.0.1:1", "mk_1"), []
            with self.assertLogs("relay_client") as logs:
                thread = self.beside(lambda: ended.append(list(relay.listen(claim=claim))))
                self.until(lambda: logs.records)
                relay._core._closed = True  # with which close begins
                thread.join(30)
            self.assertEqual(ended, [[]])
            relay.close()

    def test_between_two_attempts(self):
        with socket.create_server(("127.0.0.1", 0)) as s:
            url = "http://127.0.0.1:%d" % s.getsockname()[1]
        attempts = []
        request = relay_client._Transport.open

        async def counted(transport):
            try:
                return await request(transport)
            finally:
                attempts.append(1)
        with mock.patch.object(relay_client._Transport, "open", counted), mock.patch.object(relay_client.log, "disabled", True):
            self.ends(url, lambda: bool(attempts) and not attempts.clear())

    def test_while_a_name_is_looked_up(self):
        looking, over = threading.Event(), threading.Event()
        self.addCleanup(over.set)

        def look(*_, **__):
            looking.set()
            over.wait(30)
            raise OSError("no such name")

        def reached():
            was = looking.is_set()
            looking.clear()
            return was
        with mock.patch.object(socket, "getaddrinfo", look):
            self.ends("http://relay.example:1", reached)


class Asynchronous(unittest.IsolatedAsyncioTestCase):
    async def pair(self):
        pair = relay_of(next(unused), Relay), relay_of(next(unused), Relay)
        for r in pair:
            self.addAsyncCleanup(r.close)
        return pair

    async def test_the_example(self):
        alice, bob = await self.pair()

        async def work():
            async for m in bob.listen():
                async with m.working():
                    await asyncio.sleep(0)
                    await m.reply({"price": m.payload["n"] + 1})
        worker = asyncio.ensure_future(work())
        answers = await asyncio.gather(*(alice.ask(bob.name, {"n": n}) for n in range(10)))
        self.assertEqual([a.payload["price"] for a in answers], list(range(1, 11)))
        self.assertEqual((await alice.whoami())["mecha_id"], alice.name)
        worker.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await worker
        await alice.send(bob.name, {"n": "x"})
        async for m in bob.listen():
            with self.assertLogs("relay_client", "ERROR"):
                async with m.working():
                    raise ValueError("in vain")
            break
        self.assertEqual((await alice.message(m.id)).detail, "in vain")

    async def test_a_question_that_cannot_be_sent_holds_up_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            for how in ({}, {"claim": True}, {"live": False}, {"state": os.path.join(folder, "place")}):
                with self.subTest(how):
                    await self.unsent_question(how)

    async def unsent_question(self, how):
        alice, bob = await self.pair()
        earlier = await alice.send(bob.name, {}, conversation="talk")
        sending, failing, send = asyncio.Event(), asyncio.Event(), alice._send

        async def never(*args, **more):
            sending.set()
            await failing.wait()
            raise Unreachable("gone")
        listener = alice.listen(**how)
        with mock.patch.object(alice, "_send", never):
            asking = asyncio.ensure_future(alice.ask(bob.name, {}, conversation="talk"))
            await sending.wait()
        question = await bob.message(earlier.message_id)
        await question.reply({"n": 1})  # for all that is known, it could be the answer
        await bob.send(alice.name, {"n": 2})
        await bob.send(alice.name, {"n": 3}, conversation="talk")
        got = [await asyncio.wait_for(listener.__anext__(), PATIENCE) for _ in range(2)]
        self.assertEqual([m.payload["n"] for m in got], [2, 3])
        if "state" in how:  # the place stays before what was set aside
            hearing = asyncio.ensure_future(listener.__anext__())
            await asyncio.sleep(0)
            with open(how["state"]) as f:
                self.assertEqual(json.load(f)["after"], "")
        else:
            await asyncio.gather(*(m.ack() for m in got))
            hearing = asyncio.ensure_future(listener.__anext__())
        failing.set()
        with self.assertRaises(Unreachable):
            await asking
        self.assertEqual((await asyncio.wait_for(hearing, PATIENCE)).payload, {"n": 1})
        await listener.aclose()

    async def test_a_question_is_marked(self):
        alice, bob = await self.pair()
        asked = [dict(), dict(correlation_id="c"), dict(conversation="talk"), dict(conversation="talk", correlation_id="c"), dict(idempotency_key="k"), dict(idempotency_key="k")]
        gone = await asyncio.gather(*(no_answer(alice.ask, bob.name, {}, 0.5, **more) for more in asked))
        got = [await alice.message(e.message_id) for e in gone]
        mark = "ask-" + hashlib.sha256(bob.name.encode()).hexdigest()[:8] + "-[0-9a-f]{24}"
        for m, (conversation, correlation) in zip(got, [(mark, ""), (mark, "c"), ("talk", mark), ("talk", "c"), (mark, ""), (mark, "")]):
            self.assertRegex(m.conversation_id, "^(%s)$" % conversation)
            self.assertRegex(m.correlation_id, "^(%s)$" % correlation)
        self.assertEqual((len({m.conversation_id for m in got}), len({m.id for m in got})), (4, 5))  # the two with one key are one

    async def test_the_request_that_asks_has_two_seconds_more(self):
        alice, bob = await self.pair()
        given = []

        async def away(*request):
            given.append(request[-1])
            raise Unreachable("gone", temporary=False)
        with mock.patch.object(relay_client, "_clock", lambda: 0.0), mock.patch.object(alice._transport, "request", away):
            for call in alice.ask, alice.send:
                with self.assertRaises(Unreachable):
                    await call(bob.name, {}, timeout=0.5)
        self.assertEqual(given, [2.5, 0.5])

    async def test_durations(self):
        alice, bob = await self.pair()
        sent = await alice.send(bob.name, {})
        m = await bob.message(sent.message_id)
        for wrong in (math.nan, -1, -math.inf, "5"):
            for call in (lambda: alice.send(bob.name, {}, timeout=wrong), lambda: alice.ask(bob.name, {}, timeout=wrong), lambda: m.ack(timeout=wrong),
                         lambda: m.reply({}, timeout=wrong), lambda: m.defer(1, timeout=wrong),
                         lambda: alice.send(bob.name, {}, ttl=wrong), lambda: alice.send(bob.name, {}, ack_by=wrong)):
                with self.assertRaisesRegex(ValueError, "must be a number of seconds"):
                    await call()
            self.assertRaisesRegex(ValueError, "timeout must be", relay_of, KEYS[0], lambda **more: Relay(timeout=wrong, **more))
        for wrong in (math.nan, "5"):
            with self.assertRaisesRegex(ValueError, "must be a number of seconds"):
                await m.defer(wrong)
        for call in (lambda: m.defer(math.inf), lambda: alice.send(bob.name, {}, ttl=math.inf)):
            with self.assertRaisesRegex(ValueError, "finite"):
                await call()
        self.assertEqual((await bob.message(sent.message_id)).state, "queued")
        for timeout in (math.inf, 1e300):
            answering = asyncio.ensure_future(alice.ask(bob.name, {}, timeout=timeout))
            async for q in bob.listen():
                if q.id != m.id:
                    await q.reply({"n": 1})
                    await q.ack()
                    break
            self.assertEqual((await answering).payload, {"n": 1})
        with self.assertRaises(NoAnswer):
            await alice.ask(bob.name, {}, timeout=0)
        self.assertTrue((await alice.send(bob.name, {}, ttl=0.5, timeout=0)).message_id)

    async def test_a_payload_of_bytes_is_an_object_and_nothing_else(self):
        alice, bob = await self.pair()
        for wrong in (b'{},"priority":"urgent"', b'{},"message_type":"x","y":{}', b"{}}", b"{", b"[]", b"1", b"", b'{"a":NaN}', b"\xff{}",
                      '{"a":1}'.encode("utf-16"), b"\xef\xbb\xbf{}", b'{"a":' * 100_000 + b"1" + b"}" * 100_000):
            with self.assertRaisesRegex(ValueError, "the payload", msg=wrong[:50]):
                await alice.send(bob.name, wrong)
        sent = await alice.send(bob.name, bytearray(b' {"n": 1.0} \n'))
        self.assertEqual((await bob.message(sent.message_id)).payload, {"n": 1.0})

    async def test_a_link_that_is_dead(self):
        """The link dies without a word: nothing comes any more, and nothing ends the connection."""
        alice, bob = await self.pair()
        links, serving, dead, over = [], [], asyncio.Event(), asyncio.Event()

        async def forward(reader, writer):
            while True:
                data = await reader.read(1 << 16)
                if dead.is_set() and writer in links[0]:
                    await over.wait()
                    data = b""
                if not data:
                    break
                writer.write(data)
            writer.close()

        async def link(reader, writer):
            to = bob._transport
            serving.append(asyncio.current_task())
            up_reader, up_writer = await asyncio.open_connection(to.host, to.port)
            links.append((writer, up_writer))
            await asyncio.gather(forward(reader, up_writer), forward(up_reader, writer), return_exceptions=True)
        server = await asyncio.start_server(link, "127.0.0.1", 0)
        far = Relay("http://127.0.0.1:%d" % server.sockets[0].getsockname()[1], bob._transport.key)
        far._own = bob.name  # so that the socket is its first connection
        with mock.patch.object(relay_client, "_PING_EVERY", 0.5), self.assertLogs("relay_client", "WARNING"):
            listener = far.listen()
            for n in range(2):
                await alice.send(bob.name, {"n": n})
                m = await asyncio.wait_for(listener.__anext__(), PATIENCE)
                self.assertEqual(m.payload, {"n": n})
                dead.set()
        await far.close()
        over.set()
        await asyncio.gather(*serving)
        server.close()

    async def test_a_cancellation_is_never_lost(self):
        for steps in range(8):
            done = asyncio.get_running_loop().create_future()

            async def work():
                return await done
            task = asyncio.ensure_future(relay_client._within(30, work()))
            while not done._callbacks:
                await asyncio.sleep(0)
            done.set_result(1)
            for _ in range(steps):
                await asyncio.sleep(0)
            cancelled = task.cancel()
            await asyncio.wait([task])
            self.assertEqual(task.cancelled(), cancelled, steps)

    async def test_an_answer_that_fails_beside_another(self):
        alice, bob = await self.pair()
        await alice.send(bob.name, {})
        async for m in bob.listen():
            break
        await asyncio.gather(m.reply({}, priority="x" * 99), m.reply({"n": 2}), return_exceptions=True)
        third, fourth = await m.reply({"n": 3}), await m.reply({"n": 4})
        self.assertTrue(third.message_id and fourth.message_id)
        self.assertEqual((await alice.inbox())["pending"], 3)

    async def test_a_wait_that_is_cancelled_loses_nothing(self):
        async def one(how):
            alice, bob = await self.pair()
            listener = bob.listen(**how)
            with self.assertRaises(asyncio.TimeoutError):
                await asyncio.wait_for(listener.__anext__(), 0.3)
            await alice.send(bob.name, {"n": 1})
            m = await asyncio.wait_for(listener.__anext__(), PATIENCE)
            self.assertEqual(m.payload, {"n": 1})
            await m.ack()
        await asyncio.gather(one({}), one({"claim": True}), one({"live": False}))

    async def test_it_is_ended_by_close(self):
        alice, bob = await self.pair()

        async def work():
            return [m async for m in bob.listen()]
        worker = asyncio.ensure_future(work())
        asking = asyncio.ensure_future(bob.ask(alice.name, {}))
        await asyncio.sleep(0.1)
        await bob.close()
        self.assertEqual(await asyncio.wait_for(worker, 20), [])
        with self.assertRaises(RelayError) as caught:
            await asyncio.wait_for(asking, 20)
        self.assertEqual(caught.exception.code, "closed")


class EveryLoop(unittest.TestCase):
    def test_one_loop_after_the_other(self):
        relay = relay_of(KEYS[0], Relay)
        warnings.simplefilter("ignore", ResourceWarning)  # its connections outlive the loop
        self.addCleanup(warnings.resetwarnings)
        for _ in range(2):
            self.assertEqual(asyncio.run(relay.whoami())["mecha_id"], relay.name)

        async def closed():
            await relay.close()
        asyncio.run(closed())
        gc.collect()


class Patient(unittest.TestCase):
    """What takes seconds, by the clock of the relay. All of it begins at once."""

    @classmethod
    def setUpClass(cls):
        cls.relays, cls.loop = [], asyncio.new_event_loop()
        cls.thread = threading.Thread(target=cls.loop.run_forever)
        cls.thread.start()
        cls.runs = {}
        for name in unittest.defaultTestLoader.getTestCaseNames(cls):
            work = getattr(cls(name), name[len("test_"):])()
            cls.runs[name] = asyncio.run_coroutine_threadsafe(work, cls.loop)

    @classmethod
    def tearDownClass(cls):
        async def close():
            await asyncio.gather(*(r.close() for r in cls.relays))
        asyncio.run_coroutine_threadsafe(close(), cls.loop).result(60)
        cls.loop.call_soon_threadsafe(cls.loop.stop)
        cls.thread.join()
        cls.loop.close()

    def over(self):
        self.runs[self._testMethodName].result(2 * PATIENCE)

    test_early_answers = test_deferring = test_a_lease_is_renewed = test_a_lease_is_lost = over
    test_another_process_asks = test_nobody_waits_for_an_answer = test_an_expired_message = over

    def again(self, mecha):
        """Another process of a Mecha."""
        r = relay_of(mecha, Relay)
        self.relays.append(r)
        return r

    def pair(self):
        return self.again(next(unused)), self.again(next(unused))

    async def end(self, listener, hearing):
        await listener.aclose()
        await hearing

    async def early_answers(self):
        await asyncio.gather(*(self.early_answer(how, answer) for how in ({}, {"claim": True}, {"live": False})
                               for answer in ("in_reply_to", "correlation_id", "after all")))

    async def early_answer(self, how, answer):
        alice, bob = self.pair()
        listener, heard, came = alice.listen(**how), [], asyncio.Event()

        async def hear():
            async for m in listener:
                heard.append(m.payload)
                await m.ack()
                came.set()
        hearing = asyncio.ensure_future(hear())
        send, is_answer, held = alice._send, alice._is_answer, asyncio.Event()

        async def late(*args, **more):
            sent = await send(*args, **more)
            async for q in bob.listen():
                if answer == "correlation_id":
                    await bob.send(alice.name, {"n": 1}, conversation=q.conversation_id, correlation_id=q.correlation_id)
                else:
                    await q.reply({"n": 1})
                await q.reply({"n": 2})
                await q.ack()
                break
            await held.wait()
            self.assertEqual(heard, [])
            if answer == "after all":  # ask fails, so the listener has what came
                raise Unreachable("gone")
            return sent

        async def noted(m):
            held.set()
            return await is_answer(m)
        with mock.patch.multiple(alice, _send=late, _is_answer=noted):
            ask = alice.ask(bob.name, {}, timeout=PATIENCE, correlation_id="c" if answer == "correlation_id" else None)
            if answer == "after all":
                with self.assertRaises(Unreachable):
                    await ask
            else:
                self.assertEqual((await ask).payload, {"n": 2} if answer == "correlation_id" else {"n": 1})
            want = {"after all": [{"n": 1}, {"n": 2}], "in_reply_to": [{"n": 2}], "correlation_id": [{"n": 1}]}[answer]
            while len(heard) < len(want):
                came.clear()
                await asyncio.wait_for(came.wait(), PATIENCE)
        await self.end(listener, hearing)
        self.assertEqual(sorted(heard, key=str), want)

    async def deferring(self):
        async def one(how, pause):
            alice, bob = self.pair()
            listener = bob.listen(**how)
            sent = await alice.send(bob.name, {"n": 1})
            async with (await listener.__anext__()).working() as m:
                await m.reply({"later": True})
                await m.defer(pause, "busy")
            self.assertEqual((await alice.message(sent.message_id)).status, "deferred")
            async with (await listener.__anext__()).working() as m:
                self.assertEqual((m.id, m.attempt, m.payload), (sent.message_id, 2, {"n": 1}))
                self.assertFalse((await m.reply({"now": True})).replayed)
                self.assertTrue((await m.reply({"later": True})).replayed)  # as if it had crashed
            self.assertEqual((await alice.message(sent.message_id)).status, "completed")
        await asyncio.gather(one({}, 0.5), one({"claim": True}, -0.1), one({"live": False}, 0))

    async def a_lease_is_renewed(self):
        alice, bob = self.pair()
        await alice.send(bob.name, {"n": 1})
        async with (await bob.listen(claim=True, lease=15).__anext__()).working() as m:
            await m.ack("processing", "step 1 of 2")
            await asyncio.sleep(16)
            self.assertTrue(m.held)
            record = await alice.message(m.id)
            self.assertEqual((record.detail, record.state), ("step 1 of 2", "delivered"))

    async def a_lease_is_lost(self):
        alice, bob = self.pair()
        lost, listener = (await alice.send(bob.name, {"n": 2})).message_id, bob.listen(claim=True, lease=15)
        async with (await listener.__anext__()).working() as m:
            m._lost = "another worker has it"  # as if the relay had refused to renew it
            self.assertFalse(m.held)
            with self.assertRaises(LeaseLost):
                await m.ack()
            await m.reply({})
        self.assertEqual((await alice.message(lost)).status, "processing")
        self.assertEqual((await listener.__anext__()).attempt, 2)  # another worker gets it when the lease is over
        with self.assertRaises(ValueError):
            bob.listen(claim=True, state="x")

    async def an_expired_message(self):
        alice, bob = self.pair()
        listener, ttl = bob.listen(), 2
        await alice.send(bob.name, {})
        await (await listener.__anext__()).ack()  # the listener is connected
        coming = asyncio.ensure_future(listener.__anext__())
        while not coming.done():  # on a busy machine, a message may take longer than four seconds and expire on its way
            ttl *= 2
            self.assertLess(ttl, 100)
            sent = await alice.send(bob.name, {}, ttl=ttl)
            while not coming.done() and (await alice.message(sent.message_id)).state != "expired":
                await asyncio.sleep(0.1)
        m = await coming
        while (await alice.message(m.id)).state != "expired":
            await asyncio.sleep(0.1)
        with self.assertRaises(RelayError) as caught:
            async with m.working():
                self.fail("it has expired")
        self.assertEqual(caught.exception.code, "message_expired")

    async def another_process_asks(self):
        """The answers to a process are no work for another one of its Mecha, which gets what is for it meanwhile."""
        with tempfile.TemporaryDirectory() as folder:
            hows = {}, {"claim": True}, {"live": False}, {"state": os.path.join(folder, "place")}
            await asyncio.gather(*(self.ask_beside(how) for how in hows))

    async def ask_beside(self, how):
        mecha = next(unused)
        asker, worker, bob = self.again(mecha), self.again(mecha), self.again(next(unused))
        listener, answering, heard, came = worker.listen(breaker=1, **how), bob.listen(), [], asyncio.Event()

        async def answer():
            async for q in answering:
                if q.payload["n"] % 2:
                    await bob.send(q.sender, {"n": q.payload["n"]}, conversation=q.conversation_id, correlation_id=q.correlation_id or None)
                else:
                    await q.reply({"n": q.payload["n"]})
                await q.ack()

        async def hear():
            async for m in listener:
                heard.append(m.payload)
                if "mine" in m.payload:
                    await m.reply({"yours": 1})
                await m.ack()
                came.set()
        tasks = [asyncio.ensure_future(hear()), asyncio.ensure_future(answer())]
        questions = [asker.ask(bob.name, {"n": n}, timeout=PATIENCE, **({"conversation": "talk"} if n > 3 else {})) for n in range(8)]
        answers = await asyncio.gather(*questions)
        self.assertEqual([a.payload["n"] for a in answers], list(range(8)))
        await bob.send(asker.name, {"last": 1})
        await asyncio.wait_for(came.wait(), PATIENCE)
        self.assertEqual(heard, [{"last": 1}])
        self.assertEqual((await asker.ask(asker.name, {"mine": 1})).payload, {"yours": 1})
        self.assertEqual(heard[1:], [{"mine": 1}])
        await listener.aclose()
        await answering.aclose()
        await asyncio.gather(*tasks)

    async def nobody_waits_for_an_answer(self):
        with tempfile.TemporaryDirectory() as folder:
            hows = {}, {"claim": True}, {"live": False}, {"state": os.path.join(folder, "place")}
            await asyncio.gather(self.late_answer_to_this_process(), *(self.late_answer(how) for how in hows))

    async def late_answer_to_this_process(self):
        for how in {}, {"claim": True}:
            asker, bob = self.pair()
            question = (await no_answer(asker.ask, bob.name, {}, 0.5)).message_id
            listener = asker.listen(**how)
            await (await bob.message(question)).reply({"late": 1})
            m = await asyncio.wait_for(listener.__anext__(), PATIENCE)
            self.assertEqual((m.payload, m.attempt < 2), ({"late": 1}, True))
            await m.ack()
            await listener.aclose()

    async def late_answer(self, how):
        mecha = next(unused)
        asker, worker, bob = self.again(mecha), self.again(mecha), self.again(next(unused))
        question = (await no_answer(asker.ask, bob.name, {}, 0.5)).message_id
        await (await bob.message(question)).reply({"late": 1})
        listener = worker.listen(**how)
        m = await asyncio.wait_for(listener.__anext__(), PATIENCE)
        self.assertEqual(m.payload, {"late": 1})
        if "state" not in how:
            self.assertEqual((m.attempt, (await asker.message(m.id)).status), (4, "deferred"))
        await m.ack()
        await listener.aclose()


if __name__ == "__main__":
    unittest.main(verbosity=2)
