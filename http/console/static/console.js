// Keeps a page up to date, and makes it usable by keys. A part of a page with an id and
// data-live is fetched again, as part of the whole page, when something has happened. What
// comes from elsewhere is only ever set as text.
const body = document.body, $ = id => document.getElementById(id);
const mostRows = 60;          // of the flow
const refreshEvery = 1500;    // ms, at least, between two fetches of the page
const staleAfter = 12000;     // ms without a word from the socket; the console says something every 5 s
const pollEvery = 5000;       // ms, when there is no socket
const sayEvery = 10000;       // ms between two announcements to a screen reader
const query = body.dataset.query;
let cursor = body.dataset.cursor, socket = null, tries = 0, heard = 0, poller = 0;
let trying = null;            // a socket that is not open yet, and since when it is tried

let gone = false; // what the page shows was removed
// The state of the link: live, n behind, polling, lost.
function link(state, text) {
	if (gone) return;
	if ($("link").dataset.state != state) $("link").dataset.state = state;
	if ($("link-text").textContent != text) $("link-text").textContent = text;
}

function take(news) {
	heard = Date.now();
	over = false;
	cursor = news.cursor;
	if (news.failed) link("lost", news.failed);
	else if (news.behind) link("live", news.behind);
	else if (news.passed > 0) link("live", "page is live, sampled");
	else link(socket ? "live" : "poll", socket ? "page is live" : "polling");
	if (!news.counting && document.querySelector("[data-counting]")) refreshSoon();
	if (news.total == 0) return;
	showRows(news);
	announce(news.total);
	refreshSoon();
}

function showRows(news) {
	const flow = document.querySelector("[data-flow]");
	if (!flow) return;
	if (!query || !news.passed)
		$("sampled").textContent = news.passed ? `sampled: ${news.total - news.passed} of ${news.total} events` : "";
	for (const row of news.rows.slice(-mostRows)) {
		if ($("e" + row.position)) continue;
		const item = $("row").content.firstElementChild.cloneNode(true), cell = selector => item.querySelector(selector);
		item.id = "e" + row.position;
		cell("a").href = "/message/" + encodeURIComponent(row.id);
		cell("time").dateTime = row.at;
		cell("time").textContent = row.clock;
		cell(".what").textContent = row.what;
		cell(".what").className = "what " + row.tone;
		const [from, to] = item.querySelectorAll(".who bdi");
		from.textContent = row.from;
		to.textContent = row.to;
		cell(".kind bdi").textContent = row.type;
		cell(".note bdi").textContent = row.note;
		item.classList.add("new");
		// The newest is first; what is told late, as of a push, has its place further down.
		flow.insertBefore(item, [...flow.children].find(other => other.querySelector("time").dateTime <= row.at) ?? null);
	}
	if (news.rows.length) $("flow-none")?.remove();
	// The row that has the focus stays, so that nobody loses their place.
	for (let last = flow.lastElementChild; flow.children.length > mostRows && last; ) {
		const before = last.previousElementSibling;
		if (!last.contains(document.activeElement)) last.remove();
		last = before;
	}
}

// Screen readers hear how much has happened, not each event.
let unsaid = 0, saying = 0;
function announce(n) {
	unsaid += n;
	saying ||= setTimeout(() => {
		const verdict = $("verdict-text")?.textContent ?? "";
		$("say").textContent = `${unsaid} new ${unsaid == 1 ? "event" : "events"}. ${verdict}`;
		unsaid = saying = 0;
	}, sayEvery);
}

// The parts of the page.
let refreshing = false, refreshDue = 0, refreshed = Date.now();
function refreshSoon() {
	refreshDue ||= setTimeout(refresh, Math.max(0, refreshed + refreshEvery - Date.now()));
}

function refresh() {
	refreshDue = 0;
	if (refreshing || document.hidden || gone) return;
	refreshing = true;
	const request = new XMLHttpRequest(); // it parses the answer without running any of it
	request.open("GET", location.pathname + location.search);
	request.responseType = "document";
	request.timeout = staleAfter * 2;
	request.setRequestHeader("Accept", "text/html");
	request.onloadend = () => {
		refreshing = false;
		refreshed = Date.now();
		if (request.status == 401) ended();
		if (request.status == 404) removed();
		if (request.status == 200 && request.response) swap(request.response);
	};
	request.send();
}

function swap(fresh) {
	for (const old of document.querySelectorAll("[data-live]")) {
		const part = fresh.getElementById(old.id);
		if (!part || part.outerHTML == old.outerHTML) continue;
		const focused = old.contains(document.activeElement) ? keyOf(document.activeElement) : null;
		const added = document.importNode(part, true);
		old.replaceWith(added);
		if (focused) (find(added, focused) ?? added.querySelector("[data-row]"))?.focus({preventScroll: true});
	}
	document.title = fresh.title;
}

// removed says that what the page shows is not in the database any more. The rest stays, as it was.
function removed() {
	link("lost", "removed");
	gone = true;
	socket?.close();
	clearInterval(poller);
	const text = "This was removed from the database. What follows is how it was at " + ($("made")?.textContent.replace("as of ", "") ?? "the last look") + ".";
	if ($("verdict")) $("verdict").className = "verdict warn";
	if ($("verdict-text")) $("verdict-text").textContent = text;
	$("say").textContent = text;
}

// keyOf names a focused element so that it is found in a later page: by its id, or by what
// it leads to.
const keyOf = element => ({id: element.closest("[id]")?.id, href: element.getAttribute("href")});
const find = (part, {id, href}) => [...part.querySelectorAll("a, button, [tabindex]")].find(e => e.getAttribute("href") == href && e.closest("[id]")?.id == id);

// The socket. Without one the page asks again and again.
function connect() {
	if (!("socket" in body.dataset)) return poll();
	const address = new URL("/live", location.href);
	address.protocol = address.protocol.replace("http", "ws");
	address.search = new URLSearchParams({after: cursor, q: query});
	const s = new WebSocket(address);
	trying = {socket: s, since: Date.now()};
	s.onopen = () => {
		trying = null;
		socket = s;
		heard = Date.now();
		if (tries) refreshSoon(); // what has passed meanwhile
		tries = 0;
		clearInterval(poller);
		poller = 0;
	};
	s.onmessage = event => take(JSON.parse(event.data));
	s.onclose = () => {
		if (socket == s) socket = null;
		if (trying?.socket == s) trying = null;
		if (gone) return;
		lost();
		setTimeout(connect, Math.min(10000, 250 * 2 ** tries++));
		if (tries > 2) poll();
	};
}

// lost says since when nothing was heard.
function lost() {
	if (over) return;
	link("lost", heard ? "lost, nothing heard since " + new Date(heard).toTimeString().slice(0, 8) : "lost, trying again");
}

// A console that has stopped, or a line that is dead, closes no socket: the page gives it up.
function giveUp(s) {
	const closed = s.onclose;
	s.onopen = s.onmessage = s.onclose = null;
	s.close();
	closed();
}

async function ask() {
	const answer = await fetch("/events?" + new URLSearchParams({after: cursor, q: query}), {headers: {Accept: "application/json"}, signal: AbortSignal.timeout(staleAfter)}).catch(() => null);
	if (answer?.ok) take(await answer.json());
	else if (answer?.status == 401) ended();
	else if (!socket) lost();
}

function poll() {
	if (poller) return;
	poller = setInterval(ask, pollEvery);
	ask();
}

// The session is over: nothing will come until somebody opens the console anew, in any tab.
let over = false;
function ended() {
	over = true;
	link("lost", "the session is over: open the URL that the console prints");
}

setInterval(() => {
	if (socket && Date.now() - heard > staleAfter) giveUp(socket);
	if (trying && Date.now() - trying.since > staleAfter) giveUp(trying.socket);
	if (socket && Date.now() - refreshed > 10000) refreshSoon(); // ages grow even when nothing happens
}, 2000);
document.addEventListener("visibilitychange", () => document.hidden || refreshSoon());

// Keys.
const rows = () => [...document.querySelectorAll("a[data-row]")];
function step(by) {
	const all = rows(), at = all.indexOf(document.activeElement);
	const next = all[at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, at + by))];
	next?.focus();
}

document.addEventListener("keydown", event => {
	const typing = event.target.matches("input, textarea, select");
	if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
	if (event.key == "Escape") {
		if ($("keys").open) return; // the dialog closes itself
		if (typing) event.target.blur();
		else if (location.pathname != "/" || location.search) history.length > 1 ? history.back() : location.assign("/");
		return;
	}
	if (typing) return;
	const act = {"/": () => { $("search").focus(); $("search").select(); }, j: () => step(1), k: () => step(-1), "?": () => $("keys").showModal()}[event.key];
	if (!act) return;
	event.preventDefault();
	act();
});
$("help")?.addEventListener("click", () => $("keys").showModal());

// The row from which somebody went has the focus when they are back.
const place = "row:" + location.pathname + location.search;
document.addEventListener("click", event => {
	const row = event.target.closest("a[data-row]"); // Enter is a click, too
	if (row) sessionStorage.setItem(place, JSON.stringify(keyOf(row)));
});
const kept = sessionStorage.getItem(place);
sessionStorage.removeItem(place);
function focusKept() {
	if (kept && document.activeElement == body) find(document, JSON.parse(kept))?.focus();
}
focusKept();
addEventListener("load", focusKept); // before that, a browser may not give the focus away
addEventListener("pageshow", event => event.persisted && location.reload()); // its socket is gone

// The payload of a message, behind a click.
for (const details of document.querySelectorAll("details[data-src]"))
	details.addEventListener("toggle", async () => {
		const text = details.querySelector("pre");
		if (!details.open || text.textContent) return;
		const answer = await fetch(details.dataset.src + "?indent=1").catch(() => null);
		text.textContent = answer?.ok ? await answer.text() : "The payload could not be read.";
	});
document.addEventListener("click", async event => {
	const button = event.target.closest("button[data-copy]");
	if (!button) return;
	const answer = await fetch(button.dataset.copy).catch(() => null), before = button.textContent;
	const done = answer?.ok && await navigator.clipboard.writeText(await answer.text()).then(() => true, () => false);
	button.textContent = done ? "Copied" : "It could not be copied";
	setTimeout(() => { button.textContent = before; }, 2000);
});

connect();
