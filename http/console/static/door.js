// The page that lets a browser in. The token stands behind the # of the URL, which browsers
// send to nobody; it leaves the URL before anything else happens.
const form = document.getElementById("door"), field = document.getElementById("secret"), said = document.getElementById("said");

const tokenOf = text => text.includes("#t=") ? text.slice(text.indexOf("#t=") + 3) : text.trim();

async function enter(secret) {
	said.textContent = "";
	const answer = await fetch("/session", {method: "POST", body: new URLSearchParams({secret})}).catch(() => null);
	if (answer?.ok) location.reload();
	else said.textContent = answer ? await answer.text() : "The console does not answer.";
}

form.addEventListener("submit", event => {
	event.preventDefault();
	enter(tokenOf(field.value));
});

const hash = location.hash;
if (hash.startsWith("#t=")) {
	history.replaceState(null, "", location.pathname + location.search);
	enter(tokenOf(hash));
} else {
	// A link from another site comes without the cookie (SameSite=Strict); a request of this page has it.
	const answer = await fetch("/session").catch(() => null);
	if (answer?.ok) location.reload();
}
