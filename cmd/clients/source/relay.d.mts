/**
 * The types of relay.mjs, a client of relay, the message relay for AI agents. Made by
 * "relay client ts", version 0.0.0-unstamped. Keep it beside relay.mjs, as relay.d.mts:
 * that is where TypeScript looks for the types of an .mjs file.
 *
 * All times are in milliseconds. The relay counts in whole seconds, to which ttl, ackBy, lease
 * and deferrals are rounded up. Dates are texts as in RFC 3339.
 */

/** The version of the relay that this file comes from. */
export declare const version: string;

/**
 * A JSON object. As a payload, a client takes objects, arrays, texts, finite numbers, booleans, null,
 * and what has a toJSON, such as a Date or a URL. Members that are undefined are left out. It throws a
 * TypeError for what JSON would lose: a Map, a Set, bytes, an Error, a promise, a function, a BigInt,
 * NaN, undefined in an array, and an object that contains itself. Of an object of a class, its own
 * public fields are sent.
 */
export type JSONObject = { [name: string]: unknown };

export interface RelayOptions {
  /** Where the relay is; default RELAY_URL, or http://127.0.0.1:8080. */
  url?: string;
  /** The Mecha's key; default RELAY_KEY. */
  key?: string;
  /** A file with the key, instead; default RELAY_KEY_FILE, which goes before RELAY_KEY. Not for browsers. */
  keyFile?: string;
  /** The key's signing secret, if it was made with one; default RELAY_SIGNING_SECRET. */
  signingSecret?: string;
  /** A file with that secret, instead; default RELAY_SIGNING_SECRET_FILE. Not for browsers. */
  signingSecretFile?: string;
  /** A PEM file of certificates to trust beside the system's; default RELAY_CA_FILE. Not for browsers. */
  caFile?: string;
  /** Is told what goes wrong and is tried again, and which work has failed; null: nobody. Default: console.warn. */
  log?: ((text: string) => void) | null;
}

export interface SendOptions {
  /** The conversation's id, or a word of your own; default: a new one. */
  conversation?: string;
  /** The message's type; default "message". */
  type?: string;
  /** low, normal, high, urgent, or a word of your own; default normal. */
  priority?: string;
  /** A text that goes with the message. */
  correlationId?: string;
  /** The id of the message that this one answers, in whose conversation it is sent. */
  inReplyTo?: string;
  /** The message expires after that time, at least a second. */
  ttl?: number;
  /** The relay tells the sender if the message is not acknowledged after that time, at least a second. */
  ackBy?: number;
  /** How many messages the conversation may hold that this one begins. */
  maxMessages?: number;
  /** For 24 hours, the same message with the same text is sent only once; default: a random one. 1 to 128 printable ASCII characters. */
  idempotencyKey?: string;
  /** For how long to try if the relay is away or overloaded; 0: once; Infinity: without an end. Default 60,000, a minute. */
  timeout?: number;
  /** Ends the attempts. Whether the message was sent is not known then. */
  signal?: AbortSignal;
}

export interface AskOptions extends SendOptions {
  /** For how long to wait for the answer; 0: to try once, and not to wait. Default 60,000, a minute; at most 23 hours. */
  timeout?: number;
  /**
   * Whether to acknowledge the answer as completed; default true. ask waits for that for a second at
   * most. Then the ack goes on behind it: for a minute, and after close for ten seconds at most.
   */
  ack?: boolean;
}

export interface ReplyOptions extends Omit<SendOptions, "conversation" | "inReplyTo" | "maxMessages" | "signal"> {
  /** For how long to try; default: until ten seconds after the listener has ended, else a minute. */
  timeout?: number;
}

/** Who gets a message, as the relay saw it at the commit. */
export interface Recipient {
  online: boolean;
  lastSeen: string | null;
  /** How many messages wait before this one. */
  pending: number;
}

/** A message that was sent: it is on the relay's disk. */
export interface Sent {
  messageId: string;
  /** Of a message to a crew. */
  messageIds?: string[];
  conversationId: string;
  createdAt: string;
  recipient: Recipient | null;
  /** It was sent before, by the same idempotencyKey. */
  replayed: boolean;
}

export interface ListenOptions {
  /**
   * Share the messages with other workers of this Mecha: each goes to one of them. Default false.
   * The loop claims one message each time it is asked for one, and its lease is renewed until the
   * message is acknowledged or put off, or handle is over, also while it waits in a queue of the
   * program. A message that the program drops goes to another worker only when the memory is
   * cleared up, or the program ends: so defer what is not to be handled.
   */
  claim?: boolean;
  /** With claim: for how long a message is held unless that is renewed, 5,000 to 3,600,000; default 60,000. */
  lease?: number;
  /** With claim: this worker's name, for people. */
  worker?: string;
  /** How many answers in a conversation within ten minutes, a whole number; 0 or less: any number. Default 30. */
  breaker?: number;
  /**
   * A file in which the listener keeps its place. Then messages need no ack, and are handled one
   * after the other. Not for browsers.
   */
  state?: string;
  /**
   * auto (default): a WebSocket, or long-polls where there can be none; socket or poll: only that.
   * A connection that is dead without having been closed is noticed within 30 seconds, by pings. A
   * browser has none: there the client looks into the inbox after 30 to 50 silent seconds, which may
   * take 30 more if nothing answers. A long-poll or a claim that nobody answers is given up after at
   * most 60 seconds.
   */
  live?: "auto" | "socket" | "poll";
  /** Ends the loop. */
  signal?: AbortSignal;
}

/** What the relay says to an ack. */
export interface AckAnswer {
  messageId: string;
  state: string;
  status: string;
  clientTs: string;
  acknowledgedAt: string | null;
  duplicate: boolean;
}

/** A message that this Mecha has received. */
export declare class Message {
  private constructor();
  readonly id: string;
  /** The address of the Mecha that has sent it. */
  readonly sender: string;
  readonly to: string;
  readonly conversationId: string;
  readonly type: string;
  readonly priority: string;
  /** "" if the sender gave none. */
  readonly correlationId: string;
  /** The id of the message that this one answers. */
  readonly inReplyTo: string | null;
  readonly payload: JSONObject & Record<string, any>;
  /** Above 1 if the message comes again after a deferral or a lease. */
  readonly attempt: number;
  /** Whether the sender's request was signed; null: a WebSocket does not tell, message(id) does. */
  readonly signed: boolean | null;
  readonly sentAt: string;
  /**
   * Aborts when nothing more may be done for the message: its lease is lost, and another worker may
   * have it; or the listener has ended ten seconds ago.
   */
  readonly signal: AbortSignal;
  /**
   * Acknowledges the message, through restarts of the relay. received and processing report
   * progress; completed (default), failed and rejected are final. Throws RelayError.
   */
  ack(status?: string, detail?: string): Promise<AckAnswer>;
  /**
   * Answers the message: to its sender, in its conversation. If a worker crashes and gets the
   * message again, the same answer is not sent again, and another one is. Within one attempt, each
   * call sends a message.
   */
  reply(payload: object, options?: ReplyOptions): Promise<Sent>;
  /** Puts the message off: it comes again after that time, of at most 7 days. Less than a second,
   * also a negative time, counts as one. */
  defer(milliseconds: number, detail?: string): Promise<void>;
  /**
   * Acks processing, does the work, then acks completed, or failed with the text of the error.
   * A final ack or a deferral in the work itself stands. Gives what the work gives; undefined if
   * it has failed, or is given up. In a loop it does not throw: what ends more than one message,
   * such as a key that is revoked, ends the loop.
   */
  handle<T>(work: (message: Message) => T | Promise<T>): Promise<T | undefined>;
  /** Tells what has become of the message. */
  trace(): Promise<Trace>;
  /** Gives the payload letter for letter: JavaScript rounds large numbers. */
  text(): Promise<string>;
}

/** What is known of a message. */
export interface MessageRecord {
  messageId: string;
  conversationId: string;
  version: string;
  from: string;
  to: string;
  messageType: string;
  priority: string;
  correlationId: string;
  state: "queued" | "delivered" | "acknowledged" | "expired";
  createdAt: string;
  deliveredAt: string | null;
  acknowledgedAt: string | null;
  expiresAt: string | null;
  ack: { status: string; clientTs: string; at: string; detail: string | null } | null;
  payloadBytes: number;
  payloadSha256: string;
  signed: boolean;
  inReplyTo?: string;
  ackBy?: string;
  overdue?: boolean;
  /** Only of messages that were received, from message and history. */
  payload?: JSONObject;
}

export interface Verdict {
  code: string;
  /** A sentence. */
  text: string;
  since: string | null;
}

export interface Trace {
  message: MessageRecord;
  steps: ({ at: string; what: string } & JSONObject)[];
  verdict: Verdict;
}

/** A Mecha that was found. */
export interface Agent {
  address: string;
  name: string;
  description: string;
  /** The words that matched, and where. */
  why: string;
  /** 0 to 1. */
  score: number;
  online: boolean;
  lastSeen: string | null;
  /** Of the search. send and ask pass it on if they get the agent as the address. */
  searchId: string;
}

export interface Inbox {
  pending: number;
  oldestMessageId: string | null;
  newestMessageId: string | null;
  byPriority: { [priority: string]: number };
}

export interface Identity {
  mechaId: string;
  keyId: string;
  label: string;
  expiresAt: string | null;
  signatureRequired: boolean;
  requestSignatureRequired: boolean;
  serverTime: string;
}

/**
 * A relay, as one Mecha. All methods may be called at the same time. They throw RelayError; for
 * arguments that cannot be used, as for an option that a method does not have, a TypeError.
 */
export declare class Relay {
  constructor(options?: RelayOptions);
  /** Sends a message once, and tries until timeout is over. */
  send(to: string | Agent, payload: object, options?: SendOptions): Promise<Sent>;
  /**
   * Sends a question, and gives the answer. Throws NoAnswer if the time is up, at most seven seconds
   * later: then it looks a last time, and asks the relay for the reason. The answer is the
   * first message that names the question as inReplyTo; else the first later message from the one
   * who was asked, in the same conversation, with the same correlationId if the question had one.
   * Without conversation and inReplyTo, the question begins a conversation whose id is ask-, some
   * digits for the recipient, and random digits. Otherwise, correlationId is of this form by default.
   * By that, listeners in other processes of this Mecha leave the answer to this one.
   */
  ask(to: string | Agent, payload: object, options?: AskOptions): Promise<Message>;
  /**
   * Gives the messages for this Mecha as they come, until signal aborts, the loop is left, or
   * close is called. It leaves the answers that ask takes to ask, and those to questions of another
   * process to that one: it puts them off, and gives them out after seven seconds if they are
   * still pending then.
   */
  listen(options?: ListenOptions): AsyncGenerator<Message, void, undefined>;
  /**
   * Ends all loops, and whatever waits for the relay, with the code closed. Messages in hand have
   * ten seconds for their answers and acks, and so have the acks of answers that ask has given. Resolves when the connections are closed.
   */
  close(): Promise<void>;
  /** Finds Mechas by what they can do, in plain words. limit is 10 by default, at most 100. */
  find(query: string, options?: { limit?: number; online?: boolean }): Promise<Agent[]>;
  /** Tells how much waits. */
  inbox(): Promise<Inbox>;
  /** Gives the record of a message that this Mecha has sent or received; with the payload, if the Mecha has received it. */
  message(id: string): Promise<MessageRecord>;
  /** Tells what has become of a message, and why there is no answer to it. */
  trace(id: string): Promise<Trace>;
  /** Gives the latest messages of a conversation (100), the oldest of them first. */
  history(conversation: string, options?: { limit?: number }): Promise<MessageRecord[]>;
  /** Tells whose key this is. */
  whoami(): Promise<Identity>;
  /** Replaces the profile by which others find this Mecha. Its fields are those of the protocol. */
  publish(profile: object): Promise<JSONObject>;
  /** Gives the headers of a request, for a program that sends it itself. path has the query. */
  sign(method: string, path: string, body?: string, fixed?: { nonce?: string; timestamp?: string }): Promise<Record<string, string>>;
}

/** A refusal of the relay, or what else goes wrong with it. Branch on code. */
export declare class RelayError extends Error {
  constructor(fields?: Partial<Pick<RelayError, "code" | "status" | "detail" | "didYouMean" | "retryAfter" | "requestId" | "fields" | "cause">>);
  /** As in recipient_not_found. Codes of this client: closed, unreachable, no_answer, lease_lost, breaker_open, no_wait, no_socket, not_a_relay, redirect, search_failed. */
  readonly code: string;
  /** The status of the answer; 0 if there is none. */
  readonly status: number;
  /** A sentence for people. */
  readonly detail: string;
  /** With recipient_not_found: addresses that are close. */
  readonly didYouMean: string[];
  /** For how long the relay asks to wait; 0 if it does not. */
  readonly retryAfter: number;
  /** Names the request in the relay's log. */
  readonly requestId: string;
  /** The fields at fault. */
  readonly fields: { field: string; reason: string }[];
  /** Whether the same request, signed anew, may succeed later. */
  get temporary(): boolean;
}

/** There was no answer: whether the relay has done what was asked is not known. */
export declare class Unreachable extends RelayError {
  private constructor();
}

/**
 * A question has no answer: the time is up, or the message has failed, was rejected or has
 * expired; verdict tells. To ask again with the idempotencyKey goes on waiting.
 */
export declare class NoAnswer extends RelayError {
  private constructor();
  readonly messageId: string;
  readonly conversationId: string;
  readonly idempotencyKey: string;
  /** Why there is no answer; null if the relay did not tell. */
  readonly verdict: Verdict | null;
}

/** The lease of a claimed message is over: another worker may have it, so nothing more is done for it. */
export declare class LeaseLost extends RelayError {
  private constructor();
}
