// Keeps the page as the database is. The server sends the page's parts again whenever something in
// them has changed; what is the same stays, with its focus and its place. Without this the page is
// whole, and stands still.
"use strict";

(() => {
	const silence = 5000; // the server says each second that it is alive
	const longestPause = 10000;

	// Ages and bars move on between two pages.

	const stamps = new WeakMap(); // from an element to when its number came, and the number

	function since(element, name) {
		const text = element.getAttribute(name);
		let stamp = stamps.get(element);
		if (!stamp || stamp.text !== text) {
			stamp = { text, at: performance.now(), millis: Number(text) };
			stamps.set(element, stamp);
		}
		return stamp;
	}

	function two(n) { return String(n).padStart(2, "0"); }

	// period is as the server writes it.
	function period(millis) {
		const s = Math.floor(millis / 1000);
		if (millis < 1000) return `${Math.max(0, Math.floor(millis))} ms`;
		if (s < 60) return `${s} s`;
		if (s < 3600) return `${Math.floor(s / 60)} min ${two(s % 60)} s`;
		if (s < 86400) return `${Math.floor(s / 3600)} h ${two(Math.floor(s / 60) % 60)} min`;
		return `${Math.floor(s / 86400)} d ${two(Math.floor(s / 3600) % 24)} h`;
	}

	function say(element, text) {
		if (element.textContent !== text) element.textContent = text;
	}

	function tick() {
		const now = performance.now();
		for (const element of document.querySelectorAll("[data-age]")) {
			const stamp = since(element, "data-age");
			const millis = stamp.millis + now - stamp.at;
			if (millis >= 1000) say(element, period(millis));
		}
		for (const element of document.querySelectorAll("[data-left]")) {
			const stamp = since(element, "data-left");
			const millis = Math.max(0, stamp.millis - (now - stamp.at));
			if (element.nodeName === "PROGRESS") element.value = millis;
			else say(element, period(millis));
		}
	}

	// The new page is laid over the old one.

	function attributes(old, next) {
		stamps.delete(old); // its number is of now, also if it is the same
		for (const { name, value } of next.attributes) {
			if (old.getAttribute(name) !== value) old.setAttribute(name, value);
		}
		for (const { name } of [...old.attributes]) {
			// What a person has opened, and rows that have just changed, are not the server's.
			if (!next.hasAttribute(name) && name !== "open" && name !== "class") {
				old.removeAttribute(name);
			}
		}
		if (!next.hasAttribute("class") && old.hasAttribute("class")) old.removeAttribute("class");
	}

	function lay(old, next) {
		if (old.nodeType !== Node.ELEMENT_NODE) {
			if (old.nodeValue !== next.nodeValue) old.nodeValue = next.nodeValue;
			return;
		}
		// A row that is as it was comes empty. Its ages and bars have moved on here.
		if (next.hasAttribute("data-kept")) {
			old.removeAttribute("class");
			return;
		}
		// What a person has opened to act on stays as it was opened: else the act would be on
		// something else than was decided on. If that is gone by then, the server refuses.
		if (old.nodeName === "DETAILS" && old.open) return;
		attributes(old, next);
		const named = new Map();
		for (const child of old.children) if (child.id) named.set(child.id, child);
		let at = old.firstChild;
		for (const wanted of [...next.childNodes]) {
			const id = wanted.id;
			let same = id ? named.get(id) : at && !at.id && at.nodeName === wanted.nodeName && at;
			if (same && same.nodeName !== wanted.nodeName) same = null;
			if (!same) {
				const added = document.importNode(wanted, true);
				old.insertBefore(added, at);
				if (added.nodeName === "TR") added.classList.add("flash");
				continue;
			}
			if (same === at) at = at.nextSibling;
			else old.insertBefore(same, at);
			lay(same, wanted);
		}
		while (at) {
			const gone = at;
			at = at.nextSibling;
			gone.remove();
		}
	}

	function show(html) {
		const page = new DOMParser().parseFromString(html, "text/html");
		const focused = document.activeElement;
		for (const part of [...page.body.children]) {
			const old = document.getElementById(part.id);
			if (old) lay(old, part);
		}
		if (focused && focused !== document.activeElement && focused.isConnected) {
			focused.focus({ preventScroll: true });
		}
		tick();
	}

	// The stream, and what becomes of it.

	const status = document.getElementById("stream");
	let source = null, watchdog = 0, retry = 0;
	let pause = 0; // before the next try
	let cut = null; // since when there is no stream

	function tell(state, text) {
		if (status.dataset.state !== state || status.textContent !== text) {
			status.dataset.state = state;
			status.textContent = text;
		}
	}

	function alive() {
		clearTimeout(watchdog);
		watchdog = setTimeout(lost, silence);
	}

	function back() {
		if (cut) {
			tell("live", `live again after ${period(Date.now() - cut)}, nothing is missing`);
			setTimeout(() => { if (!cut) tell("live", "live"); }, 8000);
		} else if (status.dataset.state !== "live") {
			tell("live", "live");
		}
		cut = null;
		pause = 0;
	}

	function connect() {
		clearTimeout(retry);
		if (source) source.close();
		source = new EventSource(location.origin + location.pathname + location.search);
		source.addEventListener("view", (event) => {
			alive();
			show(event.data);
			back();
		});
		source.addEventListener("alive", alive);
		source.addEventListener("error", lost);
		alive();
	}

	function lost() {
		clearTimeout(watchdog);
		if (source) source.close();
		source = null;
		cut = cut || Date.now();
		const at = new Date(cut);
		const time = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
		tell("cut", `cut off since ${time}: what you see is of then`);
		pause = Math.min(longestPause, pause * 2 || 250);
		retry = setTimeout(connect, pause);
	}

	// A page that is not seen takes no connection.
	document.addEventListener("visibilitychange", () => {
		if (!document.hidden) {
			if (!source) connect();
			return;
		}
		clearTimeout(watchdog);
		clearTimeout(retry);
		if (source) {
			source.close();
			source = null;
			tell("paused", "paused");
		}
	});
	// What was kept from the page while it was open comes with the whole page.
	document.addEventListener("toggle", (event) => {
		if (!event.target.open && source) connect();
	}, true);
	window.addEventListener("online", () => { if (cut && !document.hidden) connect(); });

	document.addEventListener("keydown", (event) => {
		const typing = event.target.closest("input, textarea, select");
		if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
			const field = document.querySelector("input[type=search]");
			if (field) {
				event.preventDefault();
				field.focus();
				field.select();
			}
		}
	});

	setInterval(tick, 250);
	if (status.dataset) tell("", "connecting");
	if (!document.hidden) connect();
})();
