/**
 * relay.mjs is a client of relay, the message relay for AI agents: one file, no dependency,
 * for Node.js 20+, Deno, Bun and browsers. Made by "relay client js", version
 * 0.0.0-unstamped; "relay client ts" prints its types. The page "clients" of the relay's
 * documentation explains it.
 *
 *     import { Relay } from "./relay.mjs";
 *     const relay = new Relay();                        // RELAY_URL, RELAY_KEY
 *     for await (const m of relay.listen())             // reconnects, resumes, drops duplicates
 *       await m.handle(() => m.reply({ price: 17 }));   // acks processing, then completed, or failed with the text
 *     const answer = await relay.ask("flights^acme", { to: "LIS" }, { timeout: 60_000 });
 *
 * All times are in milliseconds, as everywhere in JavaScript. The relay counts in whole
 * seconds, to which ttl, ackBy, lease and deferrals are rounded up.
 */

export const version = "0.0.0-unstamped";

const second = 1000;
const attemptTimeout = 30 * second; // of one request, beyond the time that the relay holds it
const sendTimeout = 60 * second; // for which a send is tried, by default
const sendSlack = 2 * second; // beyond its time, for the answer to the request that sends a question
const answerAckWait = second; // for which ask waits for the ack of the answer that it has
const answerAckTime = 60 * second; // for which that ack is tried, behind ask
const answerAckAttempt = 5 * second; // of one request of it
const noAnswerSlack = 5 * second; // beyond its time, for a last look and for the reason
const longestAsk = 23 * 3600 * second; // an Idempotency-Key holds for 24 hours
const longestTimer = 2 ** 31 - 1; // that setTimeout takes
const longestHold = 60; // seconds for which a relay holds a request
const pollHold = 25; // seconds: proxies cut requests that last longer than half a minute
const mostPause = 10 * second; // between two attempts
const graceTime = 10 * second; // for acks and answers after a listener has ended
const remembered = 100_000; // messages that are recognised when they come again
const queuedMessages = 1000; // that wait in a listener; beyond that it hangs up until they are done
const queuedBytes = 16 << 20;
const syncLimit = 200;
const heartbeat = 10 * second; // between two pings; a connection that answers neither of two is lost
const silence = 60 * second; // after which a connection is lost, as after a sleep of the machine: the relay has closed it
const lookPause = 20 * second; // between two looks into the inbox, in a browser
const breakerWindow = 600 * second;
const pollAgain = 300 * second; // before a listener that has to poll tries a WebSocket again
const maxFrame = 64 << 20; // bytes of a message on a WebSocket
const maxHead = 64 << 10; // bytes of the answer to a handshake
const maxDetail = 1024; // bytes of an ack's detail
const patientAttempts = 3; // at which a listener leaves an answer to another process, which has asked

const encoder = new TextEncoder();
const bytesOf = (text) => encoder.encode(text);
const textOf = (bytes) => new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);

/* ------------------------------------------------------------------ errors */

/** A refusal of the relay, or what else goes wrong with it. Branch on code. */
export class RelayError extends Error {
  constructor({ code = "", status = 0, detail = "", didYouMean = [], retryAfter = 0, requestId = "", fields = [], cause } = {}) {
    const name = [status || "", status ? code : ""].filter(Boolean).join(" ");
    super(detail ? (name ? `${detail} (${name})` : detail) : `the relay answered ${name || code}`, cause === undefined ? undefined : { cause });
    this.name = new.target.name;
    Object.assign(this, { code, status, detail, didYouMean, retryAfter, requestId, fields });
  }

  /** Whether the same request, signed anew, may succeed later. */
  get temporary() {
    if (this.code === "conversation_full") return false;
    if (["nonce_reused", "timestamp_out_of_range", "request_timeout"].includes(this.code)) return true;
    return this.status === 429 || this.status >= 500;
  }
}

/** There was no answer: whether the relay has done what was asked is not known. */
export class Unreachable extends RelayError {
  #temporary;
  constructor(detail, cause, temporary = true) {
    super({ code: "unreachable", detail, cause });
    this.#temporary = temporary;
  }
  get temporary() {
    return this.#temporary;
  }
}

/** A question has no answer: the time is up, or it has failed. It stays with the relay. */
export class NoAnswer extends RelayError {
  constructor(detail, { messageId, conversationId, idempotencyKey, verdict }) {
    super({ code: "no_answer", detail: verdict?.text ? `${detail}. ${verdict.text}` : detail });
    Object.assign(this, { messageId, conversationId, idempotencyKey, verdict });
  }
}

/** The lease of a claimed message is over: another worker may have it, so nothing more is done for it. */
export class LeaseLost extends RelayError {
  constructor(messageId, why, cause) {
    super({ code: "lease_lost", detail: `${messageId} is given up: ${why}`, cause });
  }
}

const isTemporary = (e) => e instanceof RelayError && e.temporary;
/** Whether work was given up because the program ends: by close, or by a signal. */
function isStopped(e) {
  try {
    return isRefused(e, "closed") || e?.name === "AbortError";
  } catch {
    return false; // the name of what was thrown cannot be read
  }
}
const isRefused = (e, ...codes) => e instanceof RelayError && codes.includes(e.code);
const noLongerPending = ["already_acknowledged", "message_expired", "message_not_found"];

/** Reads the problem document of a refusal (RFC 9457). A proxy's refusal has none. */
function refusal(status, header, text) {
  let problem = {};
  try {
    problem = JSON.parse(text) ?? {};
  } catch {
    problem = { detail: text.trim().slice(0, 200) };
  }
  const after = header("Retry-After") ?? "";
  const seconds = /^\d+$/.test(after) ? Number(after) : (Date.parse(after) - Date.now()) / second;
  return new RelayError({
    status,
    code: typeof problem.code === "string" ? problem.code : "",
    detail: typeof problem.detail === "string" ? problem.detail : "",
    didYouMean: Array.isArray(problem.did_you_mean) ? problem.did_you_mean : [],
    retryAfter: seconds > 0 ? seconds * second : 0,
    requestId: header("X-Request-Id") ?? "",
    fields: Array.isArray(problem.errors) ? problem.errors : [],
  });
}

/* ------------------------------------------------------------------- helpers */

/** The time that has passed since some moment, by a clock that nobody sets. It may stand still
 * while the machine sleeps: stopwatch is for what must not. */
const clock = () => performance.now();

const waiting = new WeakMap(); // signal: what is to be called when it aborts

/** Calls something once a signal aborts. Gives a function that takes that back. However many wait
 * for a signal, it has one event listener: Node.js warns of more than ten. */
function onAbort(signal, call) {
  if (!signal) return () => {};
  let calls = waiting.get(signal);
  if (!calls) {
    waiting.set(signal, (calls = new Set()));
    signal.addEventListener("abort", () => [...calls].forEach((c) => c()), { once: true });
  }
  calls.add(call);
  return () => calls.delete(call);
}

function sleep(milliseconds, signal) {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve();
    const end = () => {
      clearTimeout(timer);
      off();
      resolve();
    };
    const timer = setTimeout(end, Math.min(Math.max(milliseconds, 0), longestTimer));
    const off = onAbort(signal, end);
  });
}


/** Does some work with a signal that aborts with the first of these, some of which may be missing. */
async function within(signals, work) {
  const first = new AbortController();
  const offs = signals.filter(Boolean).map((s) => {
    if (s.aborted) first.abort(s.reason);
    return onAbort(s, () => first.abort(s.reason));
  });
  try {
    return await work(first.signal);
  } finally {
    offs.forEach((off) => off()); // the signals may live for long
  }
}

/** The pauses between attempts: they double, and half of each is random, so that the many
 * clients of a relay that was restarted do not come back all at once. */
class Backoff {
  #next = 0;
  #most;
  constructor(most) {
    this.#most = most;
  }
  after(e) {
    this.#next = Math.min(Math.max(this.#next, 250), this.#most);
    const d = this.#next / 2 + (Math.random() * this.#next) / 2;
    this.#next *= 2;
    return Math.max(d, e?.retryAfter ?? 0);
  }
  reset() {
    this.#next = 0;
  }
}

/** Repeats a request until it succeeds, fails for good, or the time is up. until gives that
 * time, which may come nearer meanwhile; the request is told how much is left, and at least least. */
async function persist(request, { until, least = 100, signal, most = 5 * second, final = () => false }) {
  for (const pause = new Backoff(most); ; ) {
    signal?.throwIfAborted();
    try {
      return await request(Math.max(until() - clock(), least));
    } catch (e) {
      if (!isTemporary(e) || final(e)) throw e;
      for (const next = clock() + pause.after(e); clock() < next && !signal?.aborted; ) {
        if (next > until()) throw e;
        await sleep(Math.min(next - clock(), second), signal);
      }
    }
  }
}

/** Escapes what could steer a terminal: others have written the text. */
function visible(text) {
  return text.replace(/[\u0000-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069]/g, (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
}

/** Puts a value into a memory that keeps the latest ones. */
function remember(memory, key, value) {
  memory.delete(key);
  memory.set(key, value);
  if (memory.size > remembered) memory.delete(memory.keys().next().value);
}

const hex = (bytes) => Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");

const random = () => hex(crypto.getRandomValues(new Uint8Array(16)));

function toBase64(bytes) {
  return btoa(String.fromCharCode(...bytes));
}

function fromBase64(text) {
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes;
}

/** Renames the members of an answer: message_id becomes messageId. What a client has named
 * itself stays as it is. */
function camel(value) {
  if (Array.isArray(value)) return value.map(camel);
  if (value === null || typeof value !== "object") return value;
  const out = {};
  for (const [name, v] of Object.entries(value)) {
    const renamed = name.replace(/_([a-z0-9])/g, (_, c) => c.toUpperCase());
    if (renamed !== "__proto__") out[renamed] = name === "payload" || name === "by_priority" ? v : camel(v);
  }
  return out;
}

function clip(text) {
  const bytes = bytesOf(String(text));
  if (bytes.length <= maxDetail) return new TextDecoder().decode(bytes); // which mends lone surrogates
  return new TextDecoder().decode(bytes.subarray(0, maxDetail - 3), { stream: true }) + "…"; // no half characters
}

/** Gives the text of what was thrown, whatever that is: reading it may throw, too. */
function textOfError(e) {
  try {
    return String(e?.message || e) || "an error without a text";
  } catch {
    return "an error without a text";
  }
}

/** Gives the SHA-256 of a text in UTF-8, in hex digits. */
async function sha256(text) {
  const sum = await subtle().digest("SHA-256", bytesOf(text));
  return hex(new Uint8Array(sum));
}

function subtle() {
  if (globalThis.crypto?.subtle) return crypto.subtle;
  throw new TypeError("this page cannot sign: browsers have crypto.subtle on https pages and on localhost only");
}

/** Gives the modules of Node.js, which Deno and Bun have too; null in a browser. Their names
 * are no literals, so that no bundler looks for them. */
const nodeModules = (() => {
  let loaded;
  const load = async () => {
    if (!globalThis.process?.versions?.node) return null;
    try {
      const names = ["net", "tls", "https", "crypto", "fs/promises"];
      const [net, tls, https, crypto, fs] = await Promise.all(names.map((n) => import(/* @vite-ignore */ /* webpackIgnore: true */ "node:" + n)));
      return { net, tls, https, crypto, fs };
    } catch {
      return null;
    }
  };
  return () => (loaded ??= load());
})();

function environment(name) {
  try {
    return (globalThis.process?.env?.[name] ?? "").trim();
  } catch {
    return ""; // Deno asks for a permission
  }
}

/* ------------------------------------------------------------------- requests */

/** Reads the file of a secret if one is named: [value, file, variable]. */
async function readSecret([value, file, variable]) {
  if (!file) return [value || environment(variable), file, variable];
  try {
    return [await (await nodeModules()).fs.readFile(file, "utf8"), file, variable];
  } catch (e) {
    throw new TypeError(`cannot read ${file} (${variable}_FILE): ${e.code ?? e.message}`, { cause: e });
  }
}

function checkCredential([value, file, variable]) {
  const key = (value || (file ? "" : environment(variable))).trim();
  if (/^[\x21-\x7e]+$/.test(key)) return key;
  if (file) throw new TypeError(`${file} (RELAY_KEY_FILE) has no key`);
  throw new TypeError("no key: set RELAY_KEY or RELAY_KEY_FILE, or pass key or keyFile (relay key create ADDRESS issues one)");
}

/** The questions that wait for an answer. The answer comes to a listener of the same Relay, too,
 * even before the relay has told the id of the question. The listener must leave it to ask:
 * its loop would take it for a question. What other processes ask is told by marks, below. */
class Questions {
  #open = new Set();
  #taken = new Map(); // ids of the answers that ask has taken
  #marks = new Map(); // of the questions that were asked here

  /** Notes that an answer is waited for. end must follow. */
  begin(to, conversation, correlation, mark) {
    remember(this.#marks, mark, true);
    const q = { to, conversation, correlation, id: "", parked: [] };
    this.#open.add(q);
    return q;
  }

  /** Says which message the question is. */
  sent(q, id, conversation) {
    if (q.id) return;
    [q.id, q.conversation] = [id, conversation];
    this.#release(q, (entry) => !mayAnswer(q, entry.fields));
  }

  /** Notes which message is the answer: it may come to a listener later. */
  take(id) {
    remember(this.#taken, id, true);
  }

  end(q) {
    this.#open.delete(q);
    this.#release(q, () => true);
  }

  /** Tells whether ask has taken a message. */
  hasTaken(id) {
    return this.#taken.has(id);
  }

  /** Tells whether a question with this mark was asked here. */
  hasAsked(mark) {
    return this.#marks.has(mark);
  }

  /** Tells whether ask may take a message. Then give is called with the entry, once that is
   * decided. */
  keep(entry, give) {
    for (const q of this.#open) if (mayAnswer(q, entry.fields)) return q.parked.push({ entry, give }) > 0;
    return false;
  }

  #release(q, free) {
    const parked = q.parked;
    q.parked = parked.filter(({ entry }) => !free(entry));
    for (const { entry, give } of parked) if (free(entry)) give(entry);
  }
}

/** Tells whether a message may be the answer to a question, by the rules of PROTOCOL §3,
 * in_reply_to. As long as the id is not known, more may be. */
function mayAnswer(q, m) {
  if (m.sender !== q.to || (q.id && m.id <= q.id)) return false; // ids are in the order of commits
  if (q.conversation && m.conversationId !== q.conversation) return false;
  if (m.inReplyTo) return q.id === "" || m.inReplyTo === q.id;
  return !q.correlation || m.correlationId === q.correlation;
}

/* A question has a mark: other processes of the same Mecha see by it whose the answer is. */

/** Gives the mark of a question to an address. A question that is sent again has the same one. */
async function markOf(to, idempotencyKey) {
  return `ask-${await markHash(to)}-${(await sha256(idempotencyKey)).slice(0, 24)}`;
}

/** Gives the digits of a mark that tell whom the question was sent to. Addresses are compared
 * exactly (PROTOCOL §1), so their letters are taken as they are. */
const markHash = async (address) => (await sha256(address)).slice(0, 8);

/** Tells whether a message is from the Mecha that was asked, by the mark of a question that
 * another process has asked. Of its own questions a process knows itself whether it waits. */
async function mayAnswerAnother(m, questions) {
  const marks = [m.conversationId, m.correlationId].filter((text) => /^ask-[0-9a-f]{8}-[0-9a-f]{24}$/.test(text));
  if (!marks.length || (m.sender === m.to && !m.inReplyTo)) return false; // the latter is a question to oneself
  const start = `ask-${await markHash(m.sender)}-`;
  const ofSender = marks.filter((mark) => mark.startsWith(start));
  return ofSender.length > 0 && !ofSender.some((mark) => questions.hasAsked(mark));
}

/** A link signs requests, sends them, and reads the answers. */
class Link {
  questions = new Questions();
  listeners = new Set(); // that have not ended
  answerAcks = new Set(); // promises of the acks that go on behind ask
  closing = new AbortController();
  #credentials; // a promise
  #given;
  #ca;
  #agent;

  constructor({ url, key, keyFile, signingSecret, signingSecretFile, caFile, log } = {}) {
    this.url = (url || environment("RELAY_URL") || "http://127.0.0.1:8080").replace(/\/$/, "");
    const parsed = /^https?:\/\//.test(this.url) && URL.canParse(this.url) ? new URL(this.url) : null;
    if (!parsed || parsed.username || parsed.password || parsed.search || parsed.hash) throw new TypeError("url (RELAY_URL) must be as in http://127.0.0.1:8080 or https://relay.example.com");
    // As in the relay's own commands, a file that is named goes before the value.
    this.#given = {
      key: [key, keyFile || (key ? "" : environment("RELAY_KEY_FILE")), "RELAY_KEY"],
      secret: [signingSecret, signingSecretFile || (signingSecret ? "" : environment("RELAY_SIGNING_SECRET_FILE")), "RELAY_SIGNING_SECRET"],
    };
    if (!this.#given.key[1]) checkCredential(this.#given.key);
    this.caFile = parsed.protocol === "https:" ? caFile || environment("RELAY_CA_FILE") : "";
    if ((this.caFile || keyFile || signingSecretFile) && !globalThis.process?.versions?.node) throw new TypeError("files are for Node.js, Deno and Bun; a browser has none");
    const tell = log === undefined ? (text) => console.warn("relay: " + text) : (log ?? (() => {}));
    this.log = (text) => {
      try {
        tell(visible(text));
      } catch {
        // a log that fails is no reason to lose messages
      }
    };
  }

  /** Gives the key, and the secret by which it signs, ready for use. */
  credentials() {
    return (this.#credentials ??= this.#readCredentials().catch((e) => {
      this.#credentials = undefined; // another attempt reads the files again
      throw e;
    }));
  }

  async #readCredentials() {
    const crypto = subtle();
    const key = checkCredential(await readSecret(this.#given.key));
    const secret = (await readSecret(this.#given.secret))[0]?.trim() || key;
    return { key, hmac: await crypto.importKey("raw", bytesOf(secret), { name: "HMAC", hash: "SHA-256" }, false, ["sign"]) };
  }

  /** Gives the headers that authenticate a request (PROTOCOL §2). target is path?query. */
  async sign(method, target, body, nonce = random(), timestamp = new Date().toISOString()) {
    const { key, hmac } = await this.credentials();
    const mac = async (head) => {
      const parts = [bytesOf(head), body, bytesOf(`|${nonce}|${timestamp}`)];
      const all = new Uint8Array(parts.reduce((n, p) => n + p.length, 0));
      parts.reduce((at, p) => (all.set(p, at), at + p.length), 0);
      return toBase64(new Uint8Array(await crypto.subtle.sign("HMAC", hmac, all)));
    };
    const [plain, whole] = await Promise.all([mac(""), mac(`${method}|${target}|`)]);
    return { "X-Mecha-Key": key, "X-Nonce": nonce, "X-Request-Timestamp": timestamp, "X-Signature": plain, "X-Request-Signature": whole };
  }

  /** Gives the URL of a path, and the target that is signed: a relay behind a prefix does not
   * see the prefix. */
  locate(path) {
    const url = new URL(this.url + path);
    if (url.search.includes("|")) url.search = url.search.replaceAll("|", "%7C"); // a bar would part the signed text
    const prefix = new URL(this.url).pathname.replace(/\/$/, "");
    return { url, target: url.pathname.slice(prefix.length) + url.search };
  }

  /** Sends one request, and gives the whole answer. body is a text of JSON. hold is for how many
   * seconds the relay may hold the request. Throws RelayError if the answer is no 2xx. */
  async request(method, path, body = "", { headers = {}, hold = 0, most = Infinity, signal } = {}) {
    const { url, target } = this.locate(path);
    const bytes = bytesOf(body);
    const all = { ...(await this.sign(method, target, bytes)), ...(body ? { "Content-Type": "application/json" } : {}), ...headers };
    if (this.caFile) await this.authorities();
    signal?.throwIfAborted();
    const stop = new AbortController();
    const forward = () => stop.abort();
    const wait = Math.max(1, Math.min(attemptTimeout + hold * second, most));
    const timer = setTimeout(forward, wait);
    const off = onAbort(signal, forward);
    try {
      const answer = await (this.caFile ? this.#requestByNode(method, url, all, bytes, stop.signal) : this.#fetch(method, url, all, bytes, stop.signal));
      if (answer.status < 200 || answer.status > 299) throw refusal(answer.status, answer.header, answer.text);
      return { ...answer, json: parseAnswer(answer) };
    } catch (e) {
      if (e instanceof RelayError) throw e;
      signal?.throwIfAborted();
      throw unreachable(this.url, e, stop.signal.aborted ? `${this.url} has not answered within ${Math.round(wait / second)} s` : "");
    } finally {
      clearTimeout(timer);
      off();
    }
  }

  async #fetch(method, url, headers, bytes, signal) {
    // A redirect would carry the key to another host.
    const r = await fetch(url, { method, headers, body: bytes.length ? bytes : undefined, redirect: "manual", cache: "no-store", credentials: "omit", signal });
    if (r.type === "opaqueredirect") throw new RelayError({ code: "redirect", detail: `${this.url} leads elsewhere; the key is not sent there` });
    return { status: r.status, header: (name) => r.headers.get(name), text: await r.text() };
  }

  /** Is #fetch, by a module that can be told of a certificate authority. */
  async #requestByNode(method, url, headers, bytes, signal) {
    const node = await nodeModules();
    const ca = await this.authorities();
    this.#agent ??= new node.https.Agent({ keepAlive: true, maxSockets: 64 });
    return new Promise((resolve, reject) => {
      const length = bytes.length || method !== "GET" ? { "Content-Length": bytes.length } : {};
      const req = node.https.request(url, { method, headers: { ...headers, ...length }, ca, agent: this.#agent, signal }, (res) => {
        const parts = [];
        res.on("data", (p) => parts.push(p)).on("error", reject);
        res.on("close", () => reject(new Error("the answer was cut off")));
        res.on("end", () => resolve({ status: res.statusCode, header: (name) => res.headers[name.toLowerCase()] ?? null, text: new TextDecoder().decode(join(parts)) }));
      });
      req.on("error", reject).end(bytes);
    });
  }

  /** Gives the certificates to trust: the system's, as Node.js knows them, and those of caFile. */
  async authorities() {
    if (!this.caFile) return undefined;
    const node = await nodeModules();
    return (this.#ca ??= node.fs.readFile(this.caFile, "utf8").then(
      (text) => {
        if (!text.includes("-----BEGIN CERTIFICATE-----")) throw new TypeError(`${this.caFile} (RELAY_CA_FILE) has no certificate in PEM`);
        return [...(node.tls.rootCertificates ?? []), text];
      },
      (e) => {
        throw new TypeError(`cannot read ${this.caFile} (RELAY_CA_FILE): ${e.code ?? e.message}`, { cause: e });
      },
    ));
  }

  async call(method, path, value, options) {
    return (await this.request(method, path, value === undefined ? "" : JSON.stringify(value), options)).json;
  }

  ack(id, status, detail, more = {}, options) {
    return this.call("POST", `/api/v1/messages/${encodeURIComponent(id)}/ack`, { status, client_ts: new Date().toISOString(), detail: detail ? clip(detail) : undefined, ...more }, options);
  }

  /** Gives the address of the Mecha whose key this is. */
  async own(signal) {
    if (this.address) return this.address;
    const { mecha_id: address } = await this.call("GET", "/api/v1/whoami", undefined, { signal });
    if (typeof address !== "string" || address === "") throw strange();
    return (this.address = address);
  }

  /** Sends a message, with as many attempts as it takes; the Idempotency-Key makes it one. */
  async send(body, key, { until, least, signal, final }) {
    const headers = { "Idempotency-Key": checkKey(key) };
    const { header, json } = await persist((most) => this.request("POST", "/api/v1/messages", body, { headers, most, signal }), { until, least, signal, final });
    return {
      messageId: json.message_id,
      ...(json.message_ids ? { messageIds: json.message_ids } : {}),
      conversationId: json.conversation_id,
      createdAt: json.created_at,
      recipient: camel(json.recipient ?? null),
      replayed: header("Idempotent-Replayed") === "true",
    };
  }
}

function parseAnswer({ status, text }) {
  try {
    const value = JSON.parse(text);
    if (value !== null && typeof value === "object") return value;
  } catch {
    // the next line says it
  }
  throw strange(status);
}

const strange = (status = 0) => new RelayError({ code: "not_a_relay", status, detail: "the answer is not that of a relay" });

function unreachable(url, e, detail = "") {
  const code = String(e?.cause?.code ?? e?.code ?? "");
  const text = e?.cause?.message || e?.message || String(e);
  const trust = /CERT|SELF_SIGNED|LEAF_SIGNATURE|ERR_TLS|ERR_SSL|EPROTO|UnknownIssuer/.test(code + text); // another attempt does not heal it
  const wrong = /WRONG_VERSION|wrong version|PACKET_LENGTH|packet length|InvalidContentType/.test(code + text);
  return new Unreachable(detail || `no answer from ${url}: ${text}${wrong ? "; does that relay speak http?" : ""}`, e, !trust);
}

/** Makes the body of a send. The members that are undefined are left out. */
function messageBody(to, payload, o) {
  const text = payloadText(payload);
  const rest = JSON.stringify({
    message_type: o.type, priority: o.priority, conversation_id: o.conversation, correlation_id: o.correlationId, in_reply_to: o.inReplyTo,
    ttl_seconds: seconds("ttl", o.ttl), ack_by_seconds: seconds("ackBy", o.ackBy), max_messages: o.maxMessages,
    search_id: to?.searchId || undefined, // searches learn from what was answered
  });
  return `{"to":${JSON.stringify(checkAddress(to))},"payload":${text}${rest === "{}" ? "" : ","}${rest.slice(1)}`;
}

/** Gives the JSON of a payload. Throws TypeError if it is no object, or if JSON would lose
 * something of it without a word. */
function payloadText(payload) {
  let text;
  try {
    text = JSON.stringify(payload, function (name, value) {
      const fault = lossy(this, name, value);
      if (!fault) return value;
      throw new TypeError(`${name === "" ? "the payload" : `${JSON.stringify(name)} in the payload`} is ${fault}`);
    });
  } catch (e) {
    if (!(e instanceof RangeError) && e?.name !== "InternalError") throw e; // the latter is Firefox's
    throw new TypeError(`the payload cannot be written as JSON: it is nested too deeply, or too large (${e.message})`, { cause: e });
  }
  if (!text?.startsWith("{")) throw new TypeError("the payload must be an object");
  return text;
}

/** Tells what is wrong with a member of a payload; "" if JSON says what it is. value is what its
 * toJSON, if it has one, has made of it. */
function lossy(holder, name, value) {
  const kind = Object.prototype.toString.call(value).slice(8, -1);
  switch (typeof value) {
    case "bigint":
      return "a BigInt, which JSON does not have: make a text of it";
    case "number":
      return Number.isFinite(value) ? "" : `${value}, which JSON does not have`;
    case "function":
    case "symbol":
      return `a ${typeof value}, which JSON would leave out`;
    case "undefined":
      return Array.isArray(holder) ? "undefined, which JSON does not have: null is a value" : "";
    case "object":
      if (value === null) return holder[name] instanceof Date ? "a Date that is not valid" : "";
      return Array.isArray(value) || ["Object", "String", "Number", "Boolean"].includes(kind) ? "" : `a ${kind}, of which JSON would not keep the content: make an object, an array or a text of it`;
  }
  return "";
}

const after = (milliseconds) => {
  const end = clock() + milliseconds;
  return () => end;
};

const messageOptions = ["type", "priority", "correlationId", "ttl", "ackBy", "idempotencyKey", "timeout"];
const sendOptions = [...messageOptions, "conversation", "inReplyTo", "maxMessages", "signal"];
const optionsOf = {
  Relay: ["url", "key", "keyFile", "signingSecret", "signingSecretFile", "caFile", "log"],
  send: sendOptions,
  ask: [...sendOptions, "ack"],
  reply: messageOptions,
  listen: ["claim", "lease", "worker", "breaker", "state", "live", "signal"],
  find: ["limit", "online"],
  history: ["limit"],
  sign: ["nonce", "timestamp"],
};

/** Refuses an option that a method does not have, as a misspelt one. Gives the options back. */
function checkOptions(method, options) {
  if (options === null || typeof options !== "object" || Array.isArray(options)) throw new TypeError(`the options of ${method} are an object`);
  const names = optionsOf[method];
  for (const name of Object.keys(options)) {
    if (names.includes(name)) continue;
    const near = names.map((n) => [optionDistance(name, n), n]).sort(([a], [b]) => a - b)[0];
    throw new TypeError(`${method} has no option ${name}${near[0] < 1 ? `: did you mean ${near[1]}?` : `; it has ${names.join(", ")}`}`);
  }
  return options;
}

/** Gives how far two names of options are from each other; from 1 on, one is not meant by the other. */
function optionDistance(given, name) {
  const [a, b] = [given, name].map((text) => text.toLowerCase().replace(/[^a-z]/g, ""));
  if (a.length > 2 && (a.startsWith(b) || b.startsWith(a) || a.endsWith(b))) return Math.abs(a.length - b.length) / 100; // as in conversation_id
  let row = Array.from({ length: b.length + 1 }, (_, i) => i); // of edits (Levenshtein)
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) next.push(Math.min(row[j] + 1, next[j - 1] + 1, row[j - 1] + (a[i - 1] === b[j - 1] ? 0 : 1)));
    row = next;
  }
  return row[b.length] / (1 + Math.max(a.length, b.length) / 3);
}

/** Checks a timeout; 0 tries once. */
function checkTimeout(milliseconds, most = Infinity) {
  if (typeof milliseconds === "number" && milliseconds >= 0 && milliseconds <= most) return milliseconds;
  throw new TypeError(`timeout is in milliseconds, 0 or more${most < Infinity ? ` and at most ${most}` : ""}`);
}

/** Gives how long one request may take at least: what is tried once has the time of an attempt. */
const leastOf = (timeout) => (timeout === 0 ? attemptTimeout : undefined);

/** Gives the address of a recipient: a text, or an agent that find gave. */
function checkAddress(to) {
  const address = to?.address ?? to;
  if (typeof address !== "string") throw new TypeError("to is the address of a Mecha, as a text, or an agent that find gave");
  return address;
}

/** Gives the whole seconds that the relay counts in. */
function seconds(name, milliseconds) {
  if (milliseconds === undefined) return undefined;
  if (!(milliseconds >= second && milliseconds < Infinity)) throw new TypeError(`${name} is in milliseconds, at least ${second}`);
  return Math.ceil(milliseconds / second);
}

function checkKey(idempotencyKey) {
  if (typeof idempotencyKey !== "string" || !/^[\x21-\x7e]([\x20-\x7e]{0,126}[\x21-\x7e])?$/.test(idempotencyKey)) throw new TypeError("an idempotencyKey has 1 to 128 printable ASCII characters");
  return idempotencyKey;
}

/* -------------------------------------------------------------------- messages */

/** A message that this Mecha has received. */
export class Message {
  #link;
  #text;
  #listener;
  #lease;
  #answers = new Map(); // body of an answer: {made: how many there are, unsent: numbers of those that may not have been sent}
  #final = false;
  #handled = null; // a promise, while handle is at work
  #left = false; // the work was given up, and the message is for the next listener

  constructor(link, fields, text = null, listener = null, lease = null) {
    Object.assign(this, fields);
    this.#link = link;
    this.#text = text;
    this.#listener = listener;
    this.#lease = lease;
    if (lease) dropped.register(this, lease);
  }

  /** Aborts when nothing more may be done for the message: its lease is lost, or its listener
   * has ended ten seconds ago. */
  get signal() {
    return this.#lease?.signal ?? this.#listener?.late ?? neverAborted;
  }

  /** Acknowledges the message, through restarts of the relay. Throws RelayError. */
  async ack(status = "completed", detail = "") {
    return this.#ack(String(status).toLowerCase(), detail);
  }

  async #ack(status, detail, more = {}) {
    const send = () => this.#persist((most) => this.#link.ack(this.id, status, detail, more, { most, signal: this.signal }));
    const answer = await (this.#lease ? this.#lease.alone(send) : send()); // a renewal that comes after it would undo a deferral
    if (["received", "processing"].includes(status)) {
      this.#lease?.reported(detail);
    } else {
      this.#final = true;
      this.#lease?.end(true);
      if (status !== "deferred") this.#listener?.settled(this);
    }
    return camel(answer);
  }

  /** Answers the message. The same answer, tried again after a crash, is one message. */
  async reply(payload, options = {}) {
    checkOptions("reply", options);
    const listener = this.#listener;
    const o = { type: "reply", correlationId: this.correlationId || undefined, ...options, inReplyTo: this.id };
    const body = messageBody(this.sender, payload, o);
    const until = this.#until(options.timeout);
    if (listener && !listener.mayAnswer(this.conversationId)) throw new RelayError({ code: "breaker_open", detail: listener.tooMany() });
    listener?.answering(this.conversationId, +1);
    const same = this.#answers.get(body) ?? { made: 0, unsent: [] };
    this.#answers.set(body, same);
    const n = same.unsent.shift() ?? ++same.made;
    try {
      const key = options.idempotencyKey ?? `reply-${this.id}-${(await sha256(body)).slice(0, 16)}-${n}`;
      return await this.#link.send(body, key, { until, least: leastOf(options.timeout), signal: this.signal, final: (e) => e.code === "mailbox_full" });
    } catch (e) {
      listener?.answering(this.conversationId, -1);
      same.unsent.push(n); // another try must have the same key
      throw e;
    }
  }

  /** Puts the message off: it comes again after that time. A moment that has just passed gives
   * zero or less, which counts as a second, the least that a relay takes. */
  async defer(milliseconds, detail = "") {
    if (!Number.isFinite(milliseconds)) throw new TypeError("defer's time is a number of milliseconds");
    const pause = seconds("defer's time", Math.max(milliseconds, second));
    await this.#ack("deferred", detail, { retry_after_seconds: pause });
    this.#listener?.putOff(this.id, pause * second);
  }

  /**
   * Does the work for a message: acks it processing, then completed, or failed with the text
   * of the error that the work has thrown. Gives what the work gives; undefined if it failed.
   * What ends more than one message, such as a key that is revoked, ends the listener's loop.
   */
  async handle(work) {
    let end;
    this.#handled = new Promise((resolve) => (end = resolve));
    try {
      return await this.#work(work);
    } catch (e) {
      const listener = this.#listener;
      this.#left = !isRefused(e, ...noLongerPending);
      if (this.signal.aborted || isRefused(e, ...noLongerPending)) this.#link.log(this.signal.reason?.message ?? `${this.id} is given up: ${textOfError(e)}`);
      else if (listener?.ended && (isTemporary(e) || isStopped(e))) this.#link.log(`${this.id} stays pending: ${textOfError(e)}`);
      else if (listener) listener.fail(e);
      else throw e;
      return undefined;
    } finally {
      if (!this.#final) this.#lease?.end(); // nobody works on it any more
      this.#handled = null;
      end();
    }
  }

  async #work(work) {
    let value;
    await this.#ack("processing", "");
    try {
      value = await work(this);
    } catch (e) {
      if (this.signal.aborted || (this.#listener?.ended && (isTemporary(e) || isStopped(e)))) throw e; // the message stays pending
      this.#link.log(`${this.id} failed: ${textOfError(e)}`);
      if (!this.#final) await this.#ack("failed", textOfError(e));
      return undefined;
    }
    if (!this.#final) await this.#ack("completed", "");
    return value;
  }

  /** Tells what has become of the message, and why there is no answer to it. */
  async trace() {
    return camel(await this.#link.call("GET", `/api/v1/messages/${encodeURIComponent(this.id)}/trace`));
  }

  /** Gives the payload letter for letter: JavaScript rounds large numbers. */
  async text() {
    if (this.#text !== null) return this.#text;
    return (this.#text = (await this.#link.request("GET", `/api/v1/messages/${encodeURIComponent(this.id)}/payload`)).text);
  }

  /** The loop has asked for the next message. Tells, once the work on this one is over, whether it
   * was not given up. */
  async passed() {
    await this.#handled;
    return !this.#left;
  }

  #until(timeout) {
    const listener = this.#listener;
    if (timeout === undefined && listener) return () => (listener.ended ? listener.ended + graceTime : Infinity);
    return after(checkTimeout(timeout === undefined ? sendTimeout : timeout));
  }

  #persist(request) {
    return persist(request, { until: this.#until(), signal: this.signal });
  }
}

const neverAborted = new AbortController().signal;

/** Ends the lease of a message that the program has let go of: nobody can work on it any more. */
const dropped = new FinalizationRegistry((lease) => lease.end());

const optional = (value) => (typeof value === "string" ? value : "");

/** Reads the envelope that frames and records have in common. */
function envelope(f, payload, signed) {
  return {
    id: f.message_id, sender: optional(f.from), to: optional(f.to), conversationId: optional(f.conversation_id),
    type: optional(f.message_type), priority: optional(f.priority), correlationId: optional(f.correlation_id), inReplyTo: f.in_reply_to || null,
    payload, attempt: Number.isInteger(f.attempt) ? f.attempt : 1, signed, sentAt: optional(f.created_at),
  };
}

/** Reads a frame of the type message. Throws if it is none. */
function fromFrame(f) {
  const text = textOf(fromBase64(f.payload_base64));
  const payload = JSON.parse(text);
  if (typeof f.message_id !== "string" || f.message_id === "" || payload === null || typeof payload !== "object") throw new TypeError("not a message");
  return { fields: envelope(f, payload, null), text, size: text.length };
}

/** Reads a record with its payload. Throws if it is none. */
function fromRecord(r) {
  if (typeof r?.message_id !== "string" || r.message_id === "") throw strange();
  return { fields: envelope(r, r.payload, r.signed === true), text: null, size: r.payload_bytes ?? 0, word: r.ack?.status ?? "" };
}

/* -------------------------------------------------------------------- WebSocket */

// A socket tells its owner of texts and of its end: heard(), text(string), and once
// closed({code, reason}), where the code is 1006 if the connection was cut.

/** Opens a WebSocket with the headers that sign it, over the modules of Node.js (RFC 6455). */
async function openByNode(node, link, path, owner, signal) {
  const { url, target } = link.locate(path);
  const nonce = node.crypto.randomBytes(16).toString("base64");
  const headers = {
    Host: url.host, Upgrade: "websocket", Connection: "Upgrade", "Sec-WebSocket-Key": nonce, "Sec-WebSocket-Version": "13",
    ...(await link.sign("GET", target, new Uint8Array())),
  };
  const ca = await link.authorities();
  signal.throwIfAborted();
  const request = `GET ${url.pathname}${url.search} HTTP/1.1\r\n${Object.entries(headers).map(([n, v]) => `${n}: ${v}\r\n`).join("")}\r\n`;
  const host = url.hostname.replace(/^\[|\]$/g, "");
  const secure = url.protocol === "https:";
  const to = { host, port: Number(url.port) || (secure ? 443 : 80) };
  const named = secure && !node.net.isIP(host) ? { servername: host } : {};
  const tcp = secure ? node.tls.connect({ ...to, ...named, ca, ALPNProtocols: ["http/1.1"] }) : node.net.connect(to);
  tcp.setNoDelay?.(true);
  const stop = () => tcp.destroy();
  const timer = setTimeout(() => tcp.destroy(new Error("no answer to the handshake")), attemptTimeout);
  const off = onAbort(signal, stop);
  try {
    const { head, rest } = await handshake(tcp, secure ? "secureConnect" : "connect", request);
    const { status, header } = parseHead(head);
    if (status !== 101) throw refusal(status, header, await readBody(tcp, rest, header));
    const sum = node.crypto.createHash("sha1").update(nonce + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest("base64");
    if (header("Sec-WebSocket-Accept") !== sum || header("Sec-WebSocket-Extensions")) throw new RelayError({ code: "not_a_relay", status, detail: "the answer to the handshake is not that of a WebSocket" });
    return new NodeSocket(tcp, rest, owner);
  } catch (e) {
    tcp.destroy();
    throw e instanceof RelayError ? e : unreachable(link.url, e);
  } finally {
    clearTimeout(timer);
    off();
  }
}

/** Writes the request, and reads the head of the answer. */
function handshake(tcp, ready, request) {
  return new Promise((resolve, reject) => {
    let all = new Uint8Array();
    const data = (part) => {
      all = join([all, part]);
      const end = new TextDecoder("latin1").decode(all.subarray(0, maxHead)).indexOf("\r\n\r\n");
      if (end < 0 && all.length > maxHead) return failed(new Error("the answer to the handshake has no end"));
      if (end < 0) return;
      tcp.pause();
      tcp.off("data", data).off("close", closed).off("error", failed);
      tcp.on("error", () => {}); // close follows
      resolve({ head: new TextDecoder("latin1").decode(all.subarray(0, end)), rest: all.slice(end + 4) });
    };
    const failed = (e) => reject(e);
    const closed = () => reject(Object.assign(new Error("the connection was closed before the handshake was answered"), { code: "ERR_HANDSHAKE" }));
    tcp.once(ready, () => tcp.write(request)).on("data", data).on("close", closed).on("error", failed);
  });
}

function parseHead(head) {
  const [first, ...lines] = head.split("\r\n");
  const status = Number(/^HTTP\/1\.[01] (\d{3})( |$)/.exec(first)?.[1]);
  if (!status) throw new RelayError({ code: "not_a_relay", detail: "the answer to the handshake is not HTTP" });
  const all = new Map(lines.map((l) => [l.slice(0, l.indexOf(":")).trim().toLowerCase(), l.slice(l.indexOf(":") + 1).trim()]));
  return { status, header: (name) => all.get(name.toLowerCase()) ?? null };
}

/** Reads the body of a refusal: as much as there is, until its length or the end. */
function readBody(tcp, rest, header) {
  const chunked = /chunked/i.test(header("Transfer-Encoding") ?? "");
  const most = chunked ? maxHead : Math.min(Number(header("Content-Length") ?? maxHead) || 0, maxHead);
  return new Promise((resolve) => {
    let all = rest;
    const text = () => new TextDecoder().decode(all);
    const end = () => resolve(chunked ? text().replace(/(^|\r\n)[0-9a-f]+[^\r\n]*\r\n/gi, "").trimEnd() : text());
    const enough = () => all.length >= most || (chunked && /(^|\r\n)0+\r\n/.test(text()));
    if (enough()) return end();
    tcp.on("data", (part) => {
      all = join([all, part]);
      if (enough()) end();
    });
    tcp.on("close", end);
    tcp.resume();
  });
}

function join(parts) {
  if (parts.length === 1) return parts[0];
  const all = new Uint8Array(parts.reduce((n, p) => n + p.length, 0));
  let at = 0;
  for (const p of parts) {
    all.set(p, at);
    at += p.length;
  }
  return all;
}

const [opContinue, opText, opBinary, opClose, opPing, opPong] = [0, 1, 2, 8, 9, 10];

class ProtocolFault extends Error {
  constructor(code, text) {
    super(text);
    this.code = code;
  }
}

/** Cuts what arrives into frames, and gives each whole one to take(final, opcode, payload). It
 * keeps no more than has arrived, whatever length a frame claims to have. */
class FrameReader {
  #parts = [];
  #size = 0;
  #need = 2;
  #head = null;
  constructor(take) {
    this.take = take;
  }

  push(part) {
    this.#parts.push(part);
    this.#size += part.length;
    while (this.#size >= this.#need) this.#step();
  }

  #step() {
    const all = join(this.#parts);
    this.#parts = [all];
    this.#head ??= readHeader(all);
    if (this.#head.need > this.#size) {
      this.#need = this.#head.need;
      this.#head = this.#head.whole ? this.#head : null;
      return;
    }
    const { final, opcode, start, need } = this.#head;
    this.#parts = all.length > need ? [all.subarray(need)] : [];
    this.#size -= need;
    [this.#need, this.#head] = [2, null];
    this.take(final, opcode, all.subarray(start, need));
  }
}

/** Reads the header of a frame; need is how many bytes are needed to go on. */
function readHeader(b) {
  const opcode = b[0] & 15;
  const short = b[1] & 127;
  if (b[0] & 0x70 || ![opContinue, opText, opBinary, opClose, opPing, opPong].includes(opcode)) throw new ProtocolFault(1002, "an unknown kind of frame");
  if (b[1] & 128) throw new ProtocolFault(1002, "a masked frame");
  const final = b[0] >= 128;
  if (opcode >= opClose && (!final || short > 125)) throw new ProtocolFault(1002, "a control frame that is too long or in parts");
  const start = short < 126 ? 2 : short === 126 ? 4 : 10;
  if (b.length < start) return { need: start, whole: false };
  const view = new DataView(b.buffer, b.byteOffset);
  const length = short < 126 ? short : short === 126 ? view.getUint16(2) : Number(view.getBigUint64(2));
  if (length > maxFrame) throw new ProtocolFault(1009, "a frame that is too large");
  return { need: start + length, whole: true, final, opcode, start };
}

/** The client's side of a WebSocket on a connection of Node.js. */
class NodeSocket {
  #tcp;
  #owner;
  #parts = null; // of a message in parts
  #isText = false;
  #end = null; // how it was closed
  #beat;
  #silent = stopwatch();
  #unanswered = 0; // pings since something was heard

  constructor(tcp, rest, owner) {
    this.#tcp = tcp;
    this.#owner = owner;
    const reader = new FrameReader((final, opcode, payload) => this.#frame(final, opcode, payload));
    const data = (part) => {
      if (this.#end) return; // closing
      [this.#silent, this.#unanswered] = [stopwatch(), 0];
      owner.heard();
      try {
        reader.push(part);
      } catch (e) {
        if (!(e instanceof ProtocolFault)) throw e;
        this.#close(e.code, "", `the relay has sent ${e.message}`);
      }
    };
    tcp.on("data", data).on("close", () => {
      clearInterval(this.#beat);
      owner.closed(this.#end ?? { code: 1006, reason: "" });
    });
    // A program that was busy for long has not read what has come meanwhile. So it is pings that
    // count: between two of them, the program reads.
    this.#beat = setInterval(() => {
      if (this.#unanswered === 2 || this.#silent() > silence) return tcp.destroy();
      this.#unanswered++;
      this.#write(opPing, new Uint8Array());
    }, heartbeat);
    if (rest.length) data(rest);
    tcp.resume();
  }

  close() {
    this.#close(1000, "", "");
  }

  #frame(final, opcode, payload) {
    if (this.#end) return;
    if (opcode === opPing) return this.#write(opPong, payload);
    if (opcode === opPong) return;
    if (opcode === opClose) {
      if (payload.length === 1) throw new ProtocolFault(1002, "a close frame of one byte");
      const code = payload.length ? payload[0] * 256 + payload[1] : 1000;
      if (code < 1000 || code > 4999 || [1004, 1005, 1006, 1015].includes(code)) throw new ProtocolFault(1002, "a close frame with a code of no meaning");
      return this.#close(code, new TextDecoder().decode(payload.subarray(2)));
    }
    if ((opcode === opContinue) !== (this.#parts !== null)) throw new ProtocolFault(1002, "parts of a message in disorder");
    if (opcode !== opContinue) [this.#parts, this.#isText] = [[], opcode === opText];
    this.#parts.push(payload);
    if (this.#parts.reduce((n, p) => n + p.length, 0) > maxFrame) throw new ProtocolFault(1009, "a message that is too large");
    if (!final) return;
    const whole = join(this.#parts);
    this.#parts = null;
    if (!this.#isText) return; // the relay sends texts
    let text;
    try {
      text = textOf(whole);
    } catch {
      throw new ProtocolFault(1007, "a text that is not UTF-8");
    }
    this.#owner.text(text);
  }

  #close(code, reason, fault = "") {
    if (this.#end) return;
    this.#end = { code, reason, fault };
    this.#write(opClose, Uint8Array.of(code >> 8, code & 255));
    this.#tcp.end();
    setTimeout(() => this.#tcp.destroy(), second).unref?.(); // if the relay does not hang up
  }

  #write(opcode, payload) {
    if (this.#tcp.destroyed || this.#tcp.writableEnded) return;
    const mask = crypto.getRandomValues(new Uint8Array(4));
    const frame = new Uint8Array(6 + payload.length); // only control frames are written: at most 125 bytes
    frame.set([128 | opcode, 128 | payload.length, ...mask]);
    payload.forEach((b, i) => (frame[6 + i] = b ^ mask[i % 4]));
    this.#tcp.write(frame);
  }
}

/** Opens the WebSocket of a browser, which cannot set headers: a ticket stands for them. */
async function openByTicket(link, own, path, owner, signal) {
  const { ticket } = await link.call("POST", `/api/v1/mecha/${encodeURIComponent(own)}/ticket`, undefined, { signal });
  signal.throwIfAborted();
  const { url } = link.locate(`${path}&ticket=${encodeURIComponent(ticket)}`);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  const socket = new WebSocket(url.href);
  await new Promise((resolve, reject) => {
    const failed = () => reject(unreachable(link.url, Object.assign(new Error("the WebSocket was not opened"), { code: "ERR_HANDSHAKE" })));
    const timer = setTimeout(() => (socket.close(), failed()), attemptTimeout);
    const stop = () => (socket.close(), failed());
    const off = onAbort(signal, stop);
    socket.onopen = resolve;
    socket.onerror = socket.onclose = failed;
    for (const event of ["open", "close"]) socket.addEventListener(event, () => (clearTimeout(timer), off()));
  });
  let done = false;
  const closed = (end) => {
    if (!done) owner.closed(end);
    done = true;
  };
  socket.onerror = () => {};
  socket.onclose = (e) => closed({ code: e.code, reason: e.reason });
  socket.onmessage = (e) => {
    owner.heard();
    if (!done && typeof e.data === "string") owner.text(e.data);
  };
  return {
    blind: true, // it cannot tell a connection that is lost from one that is silent
    close() {
      socket.close(1000);
      closed({ code: 1000, reason: "" });
    },
  };
}

/* -------------------------------------------------------------------- listening */

/** Gives a function that tells how much time has passed: by the clock that goes on while the
 * machine sleeps, or by the one that nobody sets, whichever says more. */
function stopwatch() {
  const [wall, steady] = [Date.now(), performance.now()];
  return () => Math.max(Date.now() - wall, performance.now() - steady);
}

/** The lease of a claimed message. It is renewed until the message is settled or put off, or the
 * program has let go of it, wherever the message waits meanwhile. It is counted from before the
 * request that began it: so it ends here before it ends at the relay, and before another worker
 * gets the message. */
class Lease {
  #id;
  #length;
  #passed; // since the request that began it, or renewed it
  #finished = false;
  #lost = new AbortController();
  #stop = new AbortController();
  #turn = Promise.resolve(); // one acknowledgement at a time
  #turns = 0;
  #detail = ""; // of the last word of progress, which renewals repeat

  /** late aborts when the time of the listener is over; fail is told what ends all of it. */
  constructor(link, id, length, passed, late, fail) {
    [this.#id, this.#length, this.#passed] = [id, length, passed];
    const off = onAbort(late, () => this.#lose("the listener has ended", late.reason));
    this.#renew(link, fail).then(off);
  }

  get signal() {
    this.#check();
    return this.#lost.signal;
  }

  /** Ends the renewals; finished: the message is settled, or put off, and needs no lease. */
  end(finished = false) {
    this.#finished ||= finished;
    this.#stop.abort();
  }

  /** Does something while no renewal is under way. */
  async alone(work) {
    const before = this.#turn;
    let end;
    this.#turn = new Promise((resolve) => (end = resolve));
    this.#turns++;
    try {
      await before;
      return await work();
    } finally {
      this.#turns--;
      end();
    }
  }

  reported(detail) {
    this.#detail = detail;
  }

  #lose(why, cause) {
    this.#stop.abort();
    if (!this.#finished) this.#lost.abort(new LeaseLost(this.#id, why, cause));
  }

  #check() {
    if (!this.#finished && !this.#lost.signal.aborted && this.#passed() >= this.#length) this.#lose("its lease could not be renewed in time, and another worker may have it now");
  }

  /** Renews the lease each time when a third of it has passed. It looks at the clock every second:
   * while the machine sleeps, its timers stand still, but the leases that the relay counts do not. */
  async #renew(link, fail) {
    const third = this.#length / 3;
    const backoff = new Backoff(third / 2);
    for (let due = third; ; ) {
      await sleep(Math.min(due - this.#passed(), second), this.#stop.signal);
      this.#check();
      if (this.#stop.signal.aborted) return;
      if (this.#passed() < due) continue;
      const passed = stopwatch();
      try {
        if (this.#turns > 0) throw new Unreachable("another acknowledgement is under way");
        await this.alone(() => link.ack(this.#id, "processing", this.#detail, {}, { most: Math.min(this.#length - this.#passed(), third), signal: this.#stop.signal }));
        this.#passed = passed;
        due = third;
        backoff.reset();
      } catch (e) {
        if (this.#stop.signal.aborted) return;
        due = this.#passed() + backoff.after(e);
        if (isRefused(e, ...noLongerPending)) return this.#lose("it is no longer pending", e);
        if (isTemporary(e)) continue;
        this.#lose("its lease cannot be renewed", e);
        return fail(e);
      }
    }
  }
}

/** Where a listener keeps its place: the last message that the loop is done with. */
class Place {
  #file;
  #own;
  #now = "";
  #writing = null;
  #fail;
  constructor(file, fail) {
    [this.#file, this.#fail] = [file, fail];
  }

  async load(own) {
    this.#own = own;
    const node = await nodeModules();
    if (!node) throw new TypeError("state names a file, which a browser does not have");
    let text;
    try {
      text = await node.fs.readFile(this.#file, "utf8");
    } catch (e) {
      if (e.code !== "ENOENT") throw e;
    }
    if (text !== undefined) this.#now = this.#read(text);
    await this.#write(); // so that a fault shows now, and not after the first message
    return this.#now;
  }

  #read(text) {
    let place;
    try {
      place = JSON.parse(text);
    } catch {
      // the next line says it
    }
    if (typeof place?.mecha_id !== "string" || typeof place.after !== "string") throw new TypeError(`${this.#file} is not a file of a listener; name another one as state`);
    if (place.mecha_id !== this.#own) throw new TypeError(`${this.#file} says where ${place.mecha_id} stopped, but the key belongs to ${this.#own}; name another file as state`);
    return place.after;
  }

  /** Moves the place. The file has it some time later. */
  set(id) {
    this.#now = id;
    this.#writing ??= this.#flush();
  }

  async #flush() {
    try {
      do await this.#write();
      while (this.#written !== this.#now);
    } catch (e) {
      this.#fail((this.fault = e));
    } finally {
      this.#writing = null;
    }
  }

  #written = "";
  async #write() {
    const { fs } = await nodeModules();
    const now = this.#now;
    const file = await fs.open(this.#file + ".new", "w", 0o600);
    try {
      await file.writeFile(JSON.stringify({ mecha_id: this.#own, after: now }) + "\n");
      await file.sync();
    } finally {
      await file.close();
    }
    await fs.rename(this.#file + ".new", this.#file);
    this.#written = now;
  }

  async close() {
    await this.#writing;
    if (this.fault) throw this.fault;
  }
}

/** A listener brings messages into its queue by a WebSocket or by long-polls, or claims them
 * one by one. */
class Listener {
  ended = 0; // when it was told to end, by clock
  #link;
  #o;
  #stop = new AbortController();
  #queue = []; // {fields, text, size}
  #bytes = 0;
  #wake = () => {};
  #roomy = () => {};
  #fault = null;
  #running = null;
  #own = "";
  #known = new Map(); // message id: the attempt that has come, and whether it was settled
  #answers = new Map(); // conversation: the times of the latest answers
  #sweep = 1000; // conversations: with more, those without a recent answer are forgotten
  #deferred = new Map(); // message id: when it comes again; for long-polls
  #place = null;
  #cursor = ""; // the last message that has come
  #polled = ""; // the cursor of long-polls
  #polling = null; // aborts the long-poll that is under way
  #pollUntil = 0;
  #failures = 0; // of sockets in a row that brought nothing
  #socket = null;
  #hungUp = false;
  #silent = stopwatch();
  #late = new AbortController(); // aborts when nothing more may be done for its messages

  constructor(link, { claim = false, lease = 60 * second, worker = "", breaker = 30, state = "", live = "auto", signal } = {}) {
    if (claim && !(lease >= 5 * second && lease <= 3600 * second)) throw new TypeError("lease is in milliseconds, from 5,000 to 3,600,000");
    if (claim && state) throw new TypeError("claim goes without state: the relay knows what is left to do");
    if (!["auto", "socket", "poll"].includes(live)) throw new TypeError("live must be auto, socket or poll");
    if (!Number.isInteger(breaker)) throw new TypeError("breaker is a whole number of answers; 0 or less is without a bound");
    this.#link = link;
    this.#o = { claim, lease: Math.ceil(lease / second) * second, worker: worker || undefined, breaker: breaker > 0 ? breaker : Infinity, live };
    if (state) this.#place = new Place(state, (e) => this.fail(e));
    if (live === "poll") this.#pollUntil = Infinity;
    this.forget = onAbort(signal, () => this.end());
    link.listeners.add(this);
    if (signal?.aborted || link.closing.signal.aborted) this.end();
  }

  /** Aborts ten seconds after the end: then requests for its messages end, too. */
  get late() {
    return this.#late.signal;
  }

  /** Gives the next message; null after the end. Throws what another attempt would not heal. */
  async next() {
    if (!this.#o.claim) this.#running ??= this.#run();
    while (!this.ended) {
      if (this.#fault) throw this.#fault;
      const entry = this.#o.claim ? await this.#claim() : this.#shift();
      if (!entry && !this.#o.claim) await new Promise((resolve) => (this.#wake = resolve));
      const m = entry && (await this.#admit(entry));
      if (m) return m;
    }
    return null;
  }

  /** The loop asks for the next message. One that keeps its place gets it when this one is done. */
  async passed(m) {
    const done = m.passed();
    if (this.#place && (await done)) this.#place.set(m.id);
  }

  async close() {
    this.end();
    await this.#running;
    await this.#place?.close();
  }

  /** Ends the waiting, at once. Messages in hand have ten seconds left. */
  end() {
    if (this.ended) return;
    this.ended = clock();
    this.#halt();
    this.forget();
    this.#link.listeners.delete(this);
    const timer = setTimeout(() => this.#late.abort(new RelayError({ code: "closed", detail: "the listener has ended, and what was not acknowledged stays pending" })), graceTime);
    if (typeof timer === "object") timer.unref?.();
    else globalThis.Deno?.unrefTimer?.(timer);
  }

  /** Ends the loop with a fault that concerns more than one message. */
  fail(e) {
    if (this.ended) return this.#link.log(textOfError(e));
    this.#fault ??= e;
    this.#halt();
  }

  #halt() {
    this.#stop.abort(new RelayError({ code: "closed", detail: "the listener has ended" }));
    this.#hangUp();
    this.#wake();
    this.#roomy();
  }

  get #halted() {
    return this.#stop.signal.aborted;
  }

  #shift() {
    const entry = this.#queue.shift();
    this.#bytes -= entry?.size ?? 0;
    if (this.#queue.length <= queuedMessages / 10) this.#roomy();
    return entry;
  }

  /** Makes the message of an entry; null if it is not to be given out. */
  async #admit(entry) {
    const link = this.#link;
    const { fields, text, lease } = entry;
    const questions = link.questions;
    if (questions.hasTaken(fields.id)) {
      lease?.end(true);
      return null;
    }
    if (questions.keep(entry, (e) => (this.#o.claim ? this.#giveBack(e) : this.#offer(e)))) return null;
    if (fields.attempt <= patientAttempts && (await mayAnswerAnother(fields, questions))) {
      this.#putBack(entry, 2 ** (fields.attempt - 1) * second);
      return null;
    }
    const m = new Message(link, fields, text, this, lease);
    if (this.mayAnswer(m.conversationId)) return m;
    link.log(`${m.id} is acknowledged as failed: ${this.tooMany()}`);
    try {
      await m.ack("failed", this.tooMany());
    } catch (e) {
      if (!isRefused(e, "lease_lost", ...noLongerPending) && !this.ended) throw e;
    }
    return null;
  }

  /** Gives a claimed message back that ask has not taken. */
  #giveBack(entry) {
    if (this.#link.questions.hasTaken(entry.fields.id)) entry.lease.end(true);
    else this.#putBack(entry, second);
  }

  /** Puts off an answer that another process of this Mecha may wait for: that one acknowledges it,
   * or it comes again. The loop goes on meanwhile. */
  async #putBack({ fields, text, lease }, pause) {
    const m = new Message(this.#link, fields, text, this, lease);
    try {
      await m.defer(pause, "it answers a question of another process");
    } catch (e) {
      if (isRefused(e, ...noLongerPending)) this.settled(m);
      else if (!isRefused(e, "lease_lost", "closed")) this.fail(e);
    } finally {
      lease?.end(true);
    }
  }

  /* The breaker: so many answers in a conversation, and no more. */

  tooMany() {
    return `not answered: this conversation has had ${this.#o.breaker} answers in ten minutes`;
  }
  mayAnswer(conversation) {
    const since = clock() - breakerWindow;
    if (this.#answers.size > this.#sweep) {
      for (const [c, times] of this.#answers) if (!(times.at(-1) >= since)) this.#answers.delete(c);
      this.#sweep = Math.max(1000, 2 * this.#answers.size);
    }
    const times = (this.#answers.get(conversation) ?? []).filter((t) => t >= since);
    times.length ? this.#answers.set(conversation, times) : this.#answers.delete(conversation);
    return times.length < this.#o.breaker;
  }
  answering(conversation, n) {
    const times = this.#answers.get(conversation) ?? [];
    n > 0 ? times.push(clock()) : times.pop();
    this.#answers.set(conversation, times);
  }

  /* What has come, and what has become of it. */

  settled(m) {
    const known = this.#known.get(m.id);
    if (known && known.attempt <= m.attempt) known.settled = true;
  }
  putOff(id, milliseconds) {
    this.#deferred.set(id, clock() + milliseconds);
    this.#polling?.abort(); // it may be under way for longer
  }

  #arrive(entry) {
    const { id, attempt } = entry.fields;
    const known = this.#known.get(id);
    if (known && attempt <= known.attempt) {
      if (known.settled && !this.#place) this.#again(entry, known);
      return;
    }
    remember(this.#known, id, { attempt, settled: false });
    this.#deferred.delete(id);
    this.#offer(entry);
  }

  #offer(entry) {
    this.#queue.push(entry);
    this.#bytes += entry.size;
    this.#wake();
  }

  /** A message comes again that was settled. Either that crossed it on the way, or the relay has
   * lost it, as after relay restore: then the message is to be handled again. */
  async #again(entry, known) {
    const { id } = entry.fields;
    const signal = this.#stop.signal;
    const record = await persist((most) => this.#link.call("GET", `/api/v1/messages/${encodeURIComponent(id)}`, undefined, { most, signal }), { until: () => Infinity, signal }).catch(() => null);
    if (!["queued", "delivered"].includes(record?.state) || this.#known.get(id) !== known) return;
    this.#known.delete(id);
    this.#arrive(entry);
  }

  /* The way in: a WebSocket, or long-polls. */

  async #run() {
    const pause = new Backoff(mostPause);
    while (!this.#halted) {
      try {
        await this.#begin();
        while (this.#full() && !this.#halted) await new Promise((resolve) => (this.#roomy = resolve));
        if (this.#halted) return;
        if (clock() < this.#pollUntil) await this.#poll();
        else await this.#connection(pause);
        pause.reset();
      } catch (e) {
        if (this.#halted) return;
        if (isRefused(e, "cursor_not_found") && this.#polled && !this.#place) {
          this.#polled = ""; // as after relay restore: begin anew
          continue;
        }
        if (isRefused(e, "cursor_not_found")) e = new TypeError(`this relay does not know the message ${this.#cursor}, where the last listener stopped; name another file as state`);
        if (!this.#mayHeal(e)) return this.fail(e);
        await this.#pause(e, pause);
      }
    }
  }

  /** Tells whether another attempt may heal it. What answered as a relay once, and now does not,
   * is a proxy that shows a page while the relay is away. */
  #mayHeal(e) {
    return isTemporary(e) || (Boolean(this.#link.address) && isRefused(e, "not_a_relay"));
  }

  async #pause(e, backoff) {
    const d = backoff.after(e);
    this.#link.log(`${e.message}; trying again in ${(d / second).toFixed(1)} s`);
    await sleep(d, this.#stop.signal);
  }

  #full() {
    return this.#queue.length >= queuedMessages || this.#bytes >= queuedBytes;
  }

  async #begin() {
    if (this.#own) return;
    const own = await this.#link.own(this.#stop.signal);
    this.#cursor = (await this.#place?.load(own)) ?? "";
    this.#own = own;
  }

  #hangUp() {
    this.#hungUp = true;
    this.#socket?.close();
  }

  async #connection(pause) {
    const limit = this.#place ? 1000 : syncLimit;
    const path = `/api/v1/ws/mecha/${encodeURIComponent(this.#own)}?sync_limit=${limit}&events=sync` + (this.#place && this.#cursor ? `&since_message_id=${encodeURIComponent(this.#cursor)}` : "");
    const stream = { behind: true, brought: 0, limit, alive: false };
    let end;
    const closed = new Promise((resolve) => (end = resolve));
    this.#hungUp = this.#halted;
    const heard = () => (this.#silent = stopwatch());
    heard();
    const owner = { heard, text: (t) => this.#text(t, stream), closed: end };
    const opened = clock();
    const socket = await this.#open(path, owner);
    if (!socket) return; // there is none: poll
    this.#socket = socket;
    if (this.#hungUp) socket.close();
    const watch = socket.blind ? setInterval(() => this.#look(), lookPause) : 0;
    const { code, reason, fault } = await closed;
    clearInterval(watch);
    this.#socket = null;
    if (this.#hungUp) return;
    if (stream.brought > 0 || clock() - opened > 5 * second) pause.reset();
    if (code === 1008) throw new RelayError({ status: 401, code: reason || "key_revoked", detail: "the relay has closed the connection: the key is no longer valid" });
    if (!stream.alive) this.#failures++;
    throw new Unreachable("the connection is lost" + (code === 1006 ? "" : `: ${fault || `it was closed with ${code} ${reason}`.trim()}`));
  }

  /** Opens the socket; null if there is no way to, and then the listener polls. */
  async #open(path, owner) {
    const node = await nodeModules();
    try {
      if (!node && typeof WebSocket !== "function") throw new RelayError({ code: "no_socket", detail: "this program has no WebSocket" });
      if (this.#failures >= 3 && this.#o.live === "auto") throw new RelayError({ code: "no_socket", detail: "three in a row brought nothing" });
      return node ? await openByNode(node, this.#link, path, owner, this.#stop.signal) : await openByTicket(this.#link, this.#own, path, owner, this.#stop.signal);
    } catch (e) {
      if (this.#halted || !(e instanceof RelayError)) throw e;
      if (e.cause?.code === "ERR_HANDSHAKE") this.#failures++;
      // Something between here and the relay does not let WebSockets through.
      const foreign = ["not_a_relay", "no_socket", "upgrade_required"].includes(e.code) || (e.code === "" && (!e.temporary || e.status === 501));
      if (this.#o.live !== "auto" || !(foreign || this.#failures >= 3)) throw e;
      [this.#failures, this.#pollUntil, this.#polled] = [0, clock() + pollAgain, this.#place ? this.#cursor : ""];
      this.#link.log(`no WebSocket (${e.message}); asking for messages instead`);
      return null;
    }
  }

  #text(text, stream) {
    let frame, entry;
    try {
      frame = JSON.parse(text);
      if (frame?.type === "message") entry = fromFrame(frame);
    } catch {
      return this.#link.log("a frame was not understood");
    }
    stream.alive = true;
    this.#failures = 0;
    if (frame?.type === "sync" && frame.phase === "end") stream.behind = false;
    if (!entry) return;
    stream.brought++;
    this.#cursor = entry.fields.id;
    this.#arrive(entry);
    if (this.#full() || (this.#place && stream.behind && stream.brought === stream.limit)) this.#hangUp(); // and go on soon
  }

  /** A browser does not tell whether a silent connection is alive. So ask the relay whether
   * there is something that has not come. */
  async #look() {
    if (this.#silent() < 1.5 * lookPause) return;
    const socket = this.#socket;
    const inbox = await this.#link.call("GET", `/api/v1/mecha/${encodeURIComponent(this.#own)}/inbox`, undefined, { signal: this.#stop.signal }).catch((e) => e);
    const newest = inbox.newest_message_id;
    if (this.#socket === socket && (inbox instanceof Unreachable || (newest && !this.#known.has(newest)))) this.#hangUp();
  }

  async #poll() {
    await this.#wakeDeferred();
    let next = pollHold * second;
    for (const due of this.#deferred.values()) next = Math.min(next, due - clock());
    const hold = Math.max(1, Math.ceil(next / second));
    const cursor = this.#polled || (this.#place ? this.#cursor : "");
    const since = cursor && `&since_message_id=${encodeURIComponent(cursor)}`;
    const path = `/api/v1/mecha/${encodeURIComponent(this.#own)}/messages?direction=in&state=pending&include=payload&limit=100&wait=${hold}${since}`;
    const page = await this.#longPoll(path, hold);
    if (!page) return;
    if (!Array.isArray(page.messages)) throw strange();
    for (const record of page.messages) {
      const entry = fromRecord(record);
      this.#cursor = entry.fields.id;
      if (entry.word === "deferred" && !this.#known.has(entry.fields.id)) this.#deferred.set(entry.fields.id, 0); // look when
      else if (!this.#deferred.has(entry.fields.id)) this.#arrive(entry);
    }
    this.#polled = page.next_cursor ?? this.#polled;
    if (!page.messages.length && !this.#place) this.#polled = ""; // the next pass finds what has become pending again
  }

  /** Gives a page of history; null if the wait for it was cut short. */
  async #longPoll(path, hold) {
    const polling = (this.#polling = new AbortController());
    const off = onAbort(this.#stop.signal, () => polling.abort());
    try {
      return await this.#link.call("GET", path, undefined, { hold, signal: polling.signal });
    } catch (e) {
      if (polling.signal.aborted) return null;
      throw e;
    } finally {
      this.#polling = null;
      off();
    }
  }

  /** Gives out messages whose deferral is over. History does not tell when that is. */
  async #wakeDeferred() {
    for (const [id, due] of this.#deferred) {
      if (due > clock()) continue;
      try {
        const signal = this.#stop.signal;
        const trace = await this.#link.call("GET", `/api/v1/messages/${encodeURIComponent(id)}/trace`, undefined, { signal });
        if (trace.verdict.code === "deferred") {
          const until = trace.steps.map((s) => Date.parse(s.until)).filter((t) => t > 0);
          this.#deferred.set(id, clock() + Math.min(Math.max((until.at(-1) ?? 0) - Date.now(), second), pollHold * second)); // the clocks may differ
          continue;
        }
        const { text } = await this.#link.request("GET", `/api/v1/messages/${encodeURIComponent(id)}/payload`, "", { signal });
        const record = { ...trace.message, attempt: (this.#known.get(id)?.attempt ?? 1) + 1 };
        if (["queued", "delivered"].includes(record.state)) this.#arrive({ fields: envelope(record, JSON.parse(text), record.signed === true), text, size: text.length });
        this.#deferred.delete(id);
      } catch (e) {
        if (!isRefused(e, ...noLongerPending)) throw e;
        this.#deferred.delete(id);
      }
    }
  }

  /* The other way in: claims. */

  async #claim() {
    const { lease, worker } = this.#o;
    const hold = Math.min(longestHold, Math.floor(lease / second / 3));
    for (const pause = new Backoff(mostPause); !this.#halted; ) {
      try {
        const own = await this.#link.own(this.#stop.signal);
        const passed = stopwatch();
        const body = { limit: 1, lease_seconds: lease / second, worker, wait: hold };
        const { messages } = await this.#link.call("POST", `/api/v1/mecha/${encodeURIComponent(own)}/claim`, body, { hold, most: (lease * 2) / 3, signal: this.#stop.signal });
        if (!Array.isArray(messages)) throw strange();
        pause.reset();
        if (!messages.length) continue;
        const entry = fromRecord(messages[0]);
        return { ...entry, lease: new Lease(this.#link, entry.fields.id, lease, passed, this.late, (e) => this.fail(e)) };
      } catch (e) {
        if (this.#halted) return null;
        if (!this.#mayHeal(e)) throw e;
        await this.#pause(e, pause);
      }
    }
    return null;
  }
}

/* ------------------------------------------------------------------------ Relay */

/** A relay, as one Mecha. All methods may be called at the same time. */
export class Relay {
  #link;

  constructor(options = {}) {
    this.#link = new Link(checkOptions("Relay", options));
  }

  /** Sends a message once, and tries until timeout is over. */
  async send(to, payload, given = {}) {
    const { idempotencyKey = random(), timeout = sendTimeout, signal, ...options } = checkOptions("send", given);
    const body = messageBody(to, payload, options);
    const tries = { until: after(checkTimeout(timeout)), least: leastOf(timeout) };
    return this.#within(signal, (signal) => this.#link.send(body, idempotencyKey, { ...tries, signal }));
  }

  /** Sends a question, and gives the answer, which it acknowledges unless ack is false: within a second, or behind this call. */
  async ask(to, payload, given = {}) {
    const { idempotencyKey = random(), timeout = sendTimeout, ack = true, signal, ...options } = checkOptions("ask", given);
    checkTimeout(timeout, longestAsk);
    const [link, until, address] = [this.#link, after(timeout), checkAddress(to).trim()];
    if (address.startsWith("*^")) throw new TypeError(`ask waits for one recipient, and ${address} is a crew`);
    const mark = await markOf(address, checkKey(idempotencyKey));
    if (!options.conversation && !options.inReplyTo) options.conversation = mark;
    else options.correlationId ||= mark;
    const asked = { body: messageBody(typeof to === "string" ? address : to, payload, options), key: idempotencyKey, timeout, until };
    asked.question = link.questions.begin(address, options.conversation ?? "", options.correlationId ?? "", mark);
    let answer;
    try {
      answer = await this.#within(signal, (signal) => this.#awaitAnswer({ ...asked, signal }));
      link.questions.take(answer.id);
    } finally {
      link.questions.end(asked.question);
    }
    if (ack) await this.#acknowledged(answer.id);
    return answer;
  }

  /** Begins to acknowledge an answer, and waits for that for a moment: the answer matters more than
   * its ack, which goes on behind ask. Without the ack, a listener of another process gets the answer. */
  async #acknowledged(id) {
    const { answerAcks } = this.#link;
    const over = new AbortController();
    const acking = this.#acknowledge(id).finally(() => {
      answerAcks.delete(acking);
      over.abort();
    });
    answerAcks.add(acking);
    await sleep(answerAckWait, over.signal);
  }

  async #acknowledge(id) {
    const link = this.#link;
    const late = new AbortController();
    let timer;
    const closing = () => (timer = setTimeout(() => late.abort(new RelayError({ code: "closed", detail: "the client was closed" })), graceTime));
    if (link.closing.signal.aborted) closing();
    const off = onAbort(link.closing.signal, closing);
    const signal = late.signal;
    try {
      await persist((most) => link.ack(id, "completed", "", {}, { most: Math.min(most, answerAckAttempt), signal }), { until: after(answerAckTime), signal, most: 2 * second });
    } catch (e) {
      link.log(`the answer ${id} is not acknowledged: ${e.message}`);
    } finally {
      off();
      clearTimeout(timer);
    }
  }

  /** Sends a question and waits for its answer. It sends the message again and again with the same
   * Idempotency-Key: only the first time sends something, and the relay holds each request until
   * the answer is there. Between two requests it looks whether the message has failed. The first
   * are short, so that a failure is noticed early. Beside a listener, the very first is not held:
   * until the question has an id, the listener holds back what may be the answer. */
  async #awaitAnswer(asked) {
    const { body, key, timeout, until, signal } = asked;
    const pause = new Backoff(2 * second);
    let sent = null;
    let known = 0; // when the relay said that it has the question
    const look = async (hold, most) => {
      const held = await this.#hold(body, key, hold, most, signal);
      if (!sent) known = clock();
      sent = held;
      this.#link.questions.sent(asked.question, held.messageId, held.conversationId);
      return held;
    };
    const slack = () => Math.min(Math.max(until() + sendSlack, known) + noAnswerSlack - clock(), noAnswerSlack);
    const lastLook = () => look(0, slack() - second); // which leaves a second for the reason
    const none = async (detail) => new NoAnswer(detail, { messageId: sent.messageId, conversationId: sent.conversationId, idempotencyKey: key, verdict: await this.#verdict(sent.messageId, slack()) });
    for (let hold = this.#link.listeners.size ? 0 : 1; ; ) {
      const left = until() - clock();
      if (sent && left <= 0) {
        const { answer } = await lastLook().catch(() => ({}));
        if (answer) return answer;
        signal.throwIfAborted();
        throw await none(`no answer to ${sent.messageId} within ${timeout / second} s`);
      }
      try {
        const wait = Math.min(hold, Math.max(sent ? Math.ceil(left / second) : Math.floor(left / second), 0));
        const { answer, waited } = await look(wait, sent ? left : (leastOf(timeout) ?? Math.max(left, 0) + sendSlack));
        if (answer) return answer;
        if (!waited) {
          await sleep(Math.min(pause.after(), until() - clock()), signal); // there was no place for one more that waits
          continue;
        }
        pause.reset();
        hold = Math.min(Math.max(2 * hold, 1), longestHold);
        if (hold === 1) continue; // it was sent just now
        const { state, ack } = await this.#link.call("GET", `/api/v1/messages/${encodeURIComponent(sent.messageId)}`, undefined, { most: Math.max(until() - clock(), second), signal });
        if (state !== "expired" && !["failed", "rejected"].includes(ack?.status)) continue;
        const late = await lastLook(); // an answer that came before the failure counts
        if (late.answer) return late.answer;
        throw await none(`${sent.messageId} has no answer`);
      } catch (e) {
        const d = pause.after(e);
        if (!isTemporary(e) || (!sent && clock() + d > until())) throw e;
        await sleep(Math.min(d, until() - clock()), signal);
      }
    }
  }

  async #hold(body, key, wait, most, signal) {
    const { header, json } = await this.#link.request("POST", "/api/v1/messages", body, { headers: { "Idempotency-Key": key, Prefer: `wait=${wait}` }, hold: wait, most, signal });
    if (json.reply === undefined) throw new RelayError({ code: "no_wait", detail: "the relay, or a proxy before it, does not know Prefer: wait, by which an answer is waited for" });
    const answer = json.reply && new Message(this.#link, fromRecord(json.reply).fields);
    return { answer, messageId: json.message_id, conversationId: json.conversation_id, waited: header("Preference-Applied") !== null };
  }

  async #verdict(id, most) {
    try {
      return camel((await this.#call("GET", `/api/v1/messages/${encodeURIComponent(id)}/trace`, undefined, { most })).verdict);
    } catch {
      return null;
    }
  }

  /** Gives the messages for this Mecha as they come, until signal aborts or the loop ends. */
  listen(options = {}) {
    const listener = new Listener(this.#link, checkOptions("listen", options));
    const messages = this.#messages(listener);
    for (const name of ["return", "throw"]) {
      const leave = messages[name].bind(messages); // which waits for the next message
      messages[name] = (value) => {
        listener.end();
        return leave(value);
      };
    }
    return messages;
  }

  async *#messages(listener) {
    try {
      for (let m = await listener.next(); m; m = await listener.next()) {
        yield m;
        await listener.passed(m);
        m = null; // so that one that the program has dropped is given up
      }
    } finally {
      await listener.close();
    }
  }

  /** Ends all loops and whatever waits, with the code closed. Messages in hand, and the acks of answers, have ten seconds. */
  async close() {
    const listeners = [...this.#link.listeners];
    this.#link.closing.abort(new RelayError({ code: "closed", detail: "the client was closed" }));
    await Promise.all([...listeners.map((l) => l.close()), ...this.#link.answerAcks]);
  }

  #within(signal, work) {
    return within([this.#link.closing.signal, signal], work);
  }

  #call(method, path, value, options = {}) {
    return this.#link.call(method, path, value, { signal: this.#link.closing.signal, ...options });
  }

  /** Finds Mechas by what they can do, in plain words. */
  async find(query, options = {}) {
    const { limit = 10, online } = checkOptions("find", options);
    const body = { query, limit, ...(online === undefined ? {} : { filter: { online } }) };
    let found = await this.#call("POST", "/api/v1/search", body, { headers: { Prefer: "wait=10" }, hold: 10 });
    for (const until = after(10 * second); found.status === "pending" && clock() < until(); ) {
      await sleep(second / 4, this.#link.closing.signal);
      found = await this.#call("GET", `/api/v1/search/${encodeURIComponent(found.request_id)}`);
    }
    if (!Array.isArray(found.results)) throw new RelayError({ code: "search_failed", detail: "the search has not come to an end" });
    return found.results.map((r) => {
      const { skill_id: skill, fields = [], terms = [] } = r.matched ?? {};
      const why = [terms.join(" "), fields.length ? "in " + fields.join(", ") : "", skill ? `(skill ${skill})` : ""].filter(Boolean).join(" ");
      return { address: r.mecha_id, name: r.display_name ?? "", description: r.description ?? "", why, score: r.score, online: r.online === true, lastSeen: r.last_seen ?? null, searchId: found.request_id ?? "" };
    });
  }

  /** Tells how much waits. */
  async inbox() {
    return camel(await this.#call("GET", `/api/v1/mecha/${encodeURIComponent(await this.#link.own(this.#link.closing.signal))}/inbox`));
  }

  /** Gives the record of a message that this Mecha has sent or received; with the payload, if
   * the Mecha has received it. */
  async message(id) {
    const path = `/api/v1/messages/${encodeURIComponent(id)}`;
    const [record, own] = await Promise.all([this.#call("GET", path), this.#link.own(this.#link.closing.signal)]);
    return { ...camel(record), ...(record.to === own ? { payload: await this.#call("GET", path + "/payload") } : {}) };
  }

  /** Tells what has become of a message, and why there is no answer to it. */
  async trace(id) {
    return camel(await this.#call("GET", `/api/v1/messages/${encodeURIComponent(id)}/trace`));
  }

  /** Gives the latest messages of a conversation, the oldest of them first. Those that this
   * Mecha has received have their payload. */
  async history(conversation, options = {}) {
    const { limit = 100 } = checkOptions("history", options);
    const records = [];
    for (let cursor = ""; ; ) {
      const path = `/api/v1/conversations/${encodeURIComponent(conversation)}/messages?order=desc&include=payload&limit=${Math.min(limit - records.length, 1000)}`;
      const page = await this.#call("GET", path + (cursor && `&before_message_id=${encodeURIComponent(cursor)}`));
      records.push(...page.messages);
      if (!page.has_more || records.length >= limit) return camel(records.slice(0, limit).reverse());
      cursor = page.next_cursor;
    }
  }

  /** Tells whose key this is. */
  async whoami() {
    return camel(await this.#call("GET", "/api/v1/whoami"));
  }

  /** Replaces the profile by which others find this Mecha. Its fields are those of the protocol. */
  async publish(profile) {
    return this.#call("PUT", `/api/v1/mecha/${encodeURIComponent(await this.#link.own(this.#link.closing.signal))}/profile`, profile);
  }

  /** Gives the headers of a request, for a program that sends it itself. path has the query. */
  async sign(method, path, body = "", fixed = {}) {
    const { nonce, timestamp } = checkOptions("sign", fixed);
    return this.#link.sign(method, path, bytesOf(body), nonce, timestamp);
  }
}
