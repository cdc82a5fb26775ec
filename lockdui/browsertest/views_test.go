package browsertest_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/lockdui"
)

// views are the addresses of all pages.
var views = []string{
	"", "sessions", "key?k=orders%2F4711", "key?k=config%2Froutes", "key?k=scheduler%2Fleader",
	"graph", "file",
}

// text is what a person reads of an element.
func (p *page) text(selector string) string {
	p.t.Helper()
	return eval[string](p, fmt.Sprintf(`document.querySelector(%q).innerText`, selector))
}

// has waits until the element has all these texts.
func (p *page) has(selector string, texts ...string) {
	p.t.Helper()
	for _, text := range texts {
		p.until(fmt.Sprintf(`((e) => e && (e.innerText ?? e.textContent).replace(/\s+/g, " ")
			.includes(%q))(document.querySelector(%q))`, text, selector))
	}
}

// Ensure that each view shows what it is for.
func TestViews(t *testing.T) {
	t.Parallel()
	s := busy(t)
	p := tab(t)
	p.open(s.url)
	p.has(".longest", "Longest wait orders/4711", "held by billing-1",
		"waiting, in order importer-2", "web-9")
	p.has("tbody tr:nth-child(1)", "orders/4711 exclusive billing-1")
	p.has("tbody", "config/routes shared by 4 edge-1", "edge-3", "and 1 more",
		"deploy db1 exclusive", "edge-5 db1 shared")
	p.has("tbody", "pool/gpu 2 of 2 slots gpu-a", "s left", `"tmp/\xff\x00sweep"`)
	p.open(s.url + "sessions")
	p.has("tbody tr:nth-child(1)", "importer-2", "invoices/2026/11", "orders/4711")
	p.has("main", "session expired: not renewed within its TTL")
	p.open(s.url + "graph")
	p.has("h1", "Waits in chains")
	if got := eval[int](p, `document.querySelectorAll("svg .box").length`); got != 10 {
		t.Errorf("%d sessions are drawn", got)
	}
	p.open(s.url + "file")
	p.has("main", "commits a second", "sessions not renewed in time 1")
	p.open(s.url + "key?k=config%2Froutes")
	p.has("svg.lanes", "edge-1", "shares it since", "deploy", "waits since")
	p.has(".legend", "shares")
	p.open(s.url + "key?k=scheduler%2Fleader")
	p.has("svg.lanes", "node-1", "lost", "node-4", "waited for 35 s")
	bars := eval[[]float64](p, `[...document.querySelectorAll("svg .hold")]
		.filter((bar) => bar.closest(".lanes")).map((bar) => bar.getBoundingClientRect().width)`)
	if len(bars) != 4 || bars[0] < 10 || bars[3] < bars[0] {
		t.Errorf("bars of %v", bars)
	}
}

// Ensure that a wait is drawn before the hold that it led to, in the lane of its session, and both
// with their true lengths, also on a page that was open all the time.
func TestLanes_WaitBeforeHold(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	first := s.holds("first", "k")
	s.Advance(10 * time.Second)
	p := tab(t)
	p.open(s.url + "key?k=k")
	s.waits(s.session("second"), "k")
	p.until(`document.querySelector(".lanes .wait")`)
	s.Advance(30 * time.Second)
	must(t, first.Close())
	p.until(`document.querySelector(".lanes .waited") && !document.querySelector(".lanes .wait")`)
	s.Advance(20 * time.Second)
	p.has("main table", "granted after a wait of 30 s", "second")
	for _, opened := range []string{"followed", "opened anew"} {
		p.until(`document.querySelectorAll(".lanes .axis")[4].textContent.endsWith("09:27:53")`)
		bars := eval[[]struct {
			Kind, Text         string
			Left, Right, Width float64
			Top                float64
		}](p, `[...document.querySelectorAll(".lanes rect.hold, .lanes rect.waited")].map((bar) => {
			const at = bar.getBoundingClientRect();
			return {Kind: bar.getAttribute("class"), Text: bar.textContent, Left: at.left,
				Right: at.right, Width: at.width, Top: at.top};
		})`)
		if len(bars) != 3 || bars[0].Kind != "hold" || bars[1].Kind != "waited" ||
			bars[1].Text != "waited for 30 s" || bars[2].Kind != "hold" {
			t.Fatalf("%s: bars %+v", opened, bars)
		}
		before, waited, held := bars[0], bars[1], bars[2]
		second := held.Width / 20 // the width of one
		for what, off := range map[string]float64{
			"the wait is not 30 s long":          waited.Width - 30*second,
			"the hold before is not 40 s long":   before.Width - 40*second,
			"the hold does not follow the wait":  held.Left - waited.Right,
			"it is not in the lane of the hold":  held.Top - waited.Top,
			"the wait does not begin after 10 s": waited.Left - before.Left - 10*second,
			"it does not end with the hold":      before.Right - waited.Right,
		} {
			if math.Abs(off) > 0.5 {
				t.Errorf("%s: %s, by %.2f: %+v", opened, what, off, bars)
			}
		}
		p.open(s.url + "key?k=k")
	}
}

// Ensure that a change is on the page within 100 ms of its commit. A machine that is busy with
// other things may take longer now and then, so the median of some tries counts.
func TestLive_Within100ms(t *testing.T) {
	for _, others := range []int{0, 10_000} {
		t.Run(fmt.Sprintf("%d other locks", others), func(t *testing.T) { liveBeside(t, others) })
	}
}

func liveBeside(t *testing.T, others int) {
	s := newSite(t, nil)
	holder := s.session("other")
	must(t, s.Update(func(tx *lockd.Txn) error {
		for i := range others {
			if _, err := tx.Lock(fmt.Sprintf("other/%05d", i), holder.ID(), nil); err != nil {
				return err
			}
		}
		return nil
	}))
	p := tab(t)
	p.open(s.url + "?sort=key")
	eval[bool](p, `window.seen = {}, new MutationObserver(() => {
		for (const row of document.querySelectorAll("tbody .key")) {
			window.seen[row.innerText] ||= performance.timeOrigin + performance.now();
		}
	}).observe(document.body, {childList: true, subtree: true, characterData: true}), true`)
	var middle time.Duration
	for round := range 5 {
		var took []time.Duration
		for try := range 7 {
			time.Sleep(400 * time.Millisecond) // so that no change waits for the one before
			key := fmt.Sprintf("key-%d-%d", round, try)
			s.holds("holder", key)
			committed := time.Now()
			p.until(fmt.Sprintf(`window.seen[%q]`, key))
			seen := eval[float64](p, fmt.Sprintf(`window.seen[%q]`, key))
			took = append(took, time.Duration(seen*1e6)-time.Duration(committed.UnixNano()))
		}
		slices.Sort(took)
		middle = took[len(took)/2]
		t.Logf("on the page after %v", took)
		if middle <= 100*time.Millisecond {
			return
		}
	}
	t.Errorf("on the page after %v", middle)
}

// Ensure that a page that has followed changes has the rows, and the order, of one that is opened
// anew. The clock stands, so that the ages of both begin alike; the page moves them on itself.
func TestLive_AsOpenedAnew(t *testing.T) {
	t.Parallel()
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(uint64(seed), 0))
	s := newSite(t, nil)
	var holders []*lockd.Session
	hold := func(i int) {
		key, name := fmt.Sprintf("key/%d", random.IntN(12)), fmt.Sprintf("session-%d", i)
		for l := range s.Locks() {
			if l.Key == key { // held, or in its lock-delay
				s.waits(s.session(name), key)
				return
			}
		}
		holders = append(holders, s.holds(name, key))
	}
	for i := range 10 {
		hold(i)
	}
	const rows = `[...document.querySelectorAll("tbody tr")].map((row) => [...row.cells]
		.map((cell) => cell.textContent.replace(/\d+ m?s/g, "").trim()).join(" | ")).join("\n")`
	p := tab(t)
	p.open(s.url)
	for i := range 15 {
		switch hold(100 + i); random.IntN(3) {
		case 0:
			i := random.IntN(len(holders))
			must(t, holders[i].Close())
			holders = slices.Delete(holders, i, i+1)
		case 1:
			must(t, s.EndSession(holders[0].ID()))
			holders = holders[1:]
		}
		last := fmt.Sprintf("last-%d", i)
		holders = append(holders, s.holds(last, last)) // so there is one to take next time
		p.has("tbody", last)
	}
	followed := eval[string](p, rows)
	p.open(s.url)
	if opened := eval[string](p, rows); followed != opened || !strings.Contains(opened, "key/") {
		t.Errorf("followed:\n%s\nopened anew:\n%s", followed, opened)
	}
}

// Ensure that ages, and the rest of a lock-delay, change on the page while time passes.
func TestLive_TimeGoesOn(t *testing.T) {
	t.Parallel()
	s := busy(t)
	p := tab(t)
	p.open(s.url)
	before := p.text(".big")
	left := eval[float64](p, `document.querySelector("progress").value`)
	p.until(fmt.Sprintf(`document.querySelector(".big").innerText !== %q`, before))
	p.until(fmt.Sprintf(`document.querySelector("progress").value < %f`, left))
}

// Ensure that the bar of a session's TTL runs out, and is whole again after a renewal, also if the
// renewed session has as much time left as the page was last sent.
func TestLive_Deadline(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	worker, err := s.NewSession(&lockd.SessionOptions{Name: "worker", TTL: time.Minute})
	must(t, err)
	p := tab(t)
	p.open(s.url + "sessions")
	p.has("tbody", "worker", "s left")
	p.until(`document.querySelector("progress").value < 59000`)
	s.Advance(time.Second)
	must(t, worker.Renew())
	p.until(`document.querySelector("progress").value > 59000`)
	p.until(`document.querySelector("progress").value < 59000`)
	s.Advance(time.Minute)
	p.has("main", "No session lives", "session expired: not renewed within its TTL")
}

// Ensure that the page says that its stream is cut, by a server that is gone or by one that sends
// nothing more, and that the page catches up.
func TestLive_CutAndCaughtUp(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]struct{ cut, mend func(s *site) }{
		"gone":   {(*site).cut, (*site).mend},
		"silent": {func(s *site) { s.mute.Store(true) }, func(s *site) { s.mute.Store(false) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, nil)
			p := tab(t)
			p.open(s.url)
			first := s.holds("first", "key/1")
			p.has("tbody", "key/1")
			cut.cut(s)
			p.until(`document.getElementById("stream").dataset.state === "cut"`)
			p.has("#stream", "cut off since")
			must(t, first.Close())
			s.holds("second", "key/2")
			if got := p.text("tbody"); !strings.Contains(got, "key/1") {
				t.Errorf("got %s", got)
			}
			cut.mend(s)
			p.has("#stream", "live again after")
			p.has("tbody", "key/2")
			if got := p.text("tbody"); strings.Contains(got, "key/1") {
				t.Errorf("got %s", got)
			}
		})
	}
}

// Ensure that a page that is not seen takes no connection, also if it was cut off before, and that
// it catches up when it is seen. The page's timers wait until the test calls them.
func TestLive_HiddenWhenCut(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	p := tab(t)
	p.open(s.url)
	p.run(chromedp.Evaluate[chromedp.Void](`
		window.opened = 0
		const stream = window.EventSource
		window.EventSource = function(url) { opened++; return new stream(url) }
		window.timers = new Map()
		let timer = 1e9 // above those that the page has set before
		window.setTimeout = (fn) => { timers.set(++timer, fn); return timer }
		const clear = window.clearTimeout
		window.clearTimeout = (id) => { timers.delete(id); clear(id) }
		window.hide = (hidden) => {
			Object.defineProperty(document, "hidden", { get: () => hidden, configurable: true })
			document.dispatchEvent(new Event("visibilitychange"))
		}
		0`))
	s.cut()
	p.until(`document.getElementById("stream").dataset.state === "cut" && timers.size > 0`)
	s.mend()
	n := eval[int](p, `(() => {
		hide(true)
		window.dispatchEvent(new Event("online"))
		for (const fn of [...timers.values()]) fn()
		return opened
	})()`)
	if n != 0 {
		t.Errorf("the hidden page has opened %d streams", n)
	}
	p.run(chromedp.Evaluate[chromedp.Void](`hide(false), 0`))
	p.has("#stream", "live again after")
}

// Ensure that keys and names that are scripts are shown as text, in the first page and in what the
// stream sends.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	s := newSite(t, &lockdui.Options{Actions: lockdui.ForceUnlockAndEnd})
	hostile := []string{
		`<script>window.hacked=1</script>`, `<img src=x onerror="window.hacked=1">`,
		`"><svg onload="window.hacked=1">`, `</title></textarea><script>window.hacked=1</script>`,
		`javascript:window.hacked=1`, "\xff\u202e<b>bold</b>", strings.Repeat("wide", 4000),
	}
	take := func(prefix string) {
		for _, text := range hostile {
			s.waits(s.holds(text, prefix+text), prefix+text)
		}
	}
	take("")
	p := tab(t)
	clean := func() {
		t.Helper()
		found := eval[[]string](p,
			`[...document.querySelectorAll("body script, img, main b, iframe")]
				.map((e) => e.outerHTML).concat(window.hacked ? ["hacked"] : [])`)
		if len(found) > 0 {
			t.Errorf("found %q", found)
		}
		wide := eval[[]float64](p, `[document.documentElement.scrollWidth, innerWidth]`)
		if wide[0] > wide[1] {
			t.Errorf("%v units wide", wide)
		}
	}
	for _, view := range []string{"", "sessions", "graph", "key?k=" + url.QueryEscape(hostile[1])} {
		p.open(s.url + view)
		clean()
	}
	p.open(s.url)
	take("later ")
	p.has("#head", "Locks 14")
	p.has("tbody", "later <script>")
	clean()
	for i, text := range hostile {
		p.open(s.url + "?prefix=" + url.QueryEscape(fmt.Sprintf("%q", text)))
		p.run(chromedp.Click("tbody a.key"))
		p.until(`location.pathname.endsWith("/key")`)
		p.has("main", "exclusive", "fence")
		const field = `document.querySelector("input[name=key]").value`
		if eval[string](p, field) != url.QueryEscape(text) {
			t.Errorf("the link to key %d leads elsewhere", i)
		}
	}
}

// Ensure that a person without a mouse gets everywhere, and keeps the place when the page changes.
func TestKeyboard(t *testing.T) {
	t.Parallel()
	s := busy(t)
	p := tab(t)
	p.open(s.url)
	p.run(chromedp.KeyEvent(kb.Tab))
	if got := eval[string](p, `document.activeElement.innerText`); got != "Skip to the content" {
		t.Errorf("the first stop is %q", got)
	}
	p.run(chromedp.KeyEvent(kb.Enter))
	p.until(`document.activeElement.id === "main"`)
	p.run(chromedp.KeyEvent(kb.Tab))
	p.until(`document.activeElement.innerText === "orders/4711"`)
	s.holds("new", "aaa")
	p.has("tbody", "aaa")
	p.until(`document.activeElement.innerText === "orders/4711"`)
	outline := eval[string](p, `getComputedStyle(document.activeElement).outlineStyle`)
	if outline == "none" {
		t.Error("what has the focus cannot be seen")
	}
	_, err := chromedp.Call(p.ctx, input.DispatchKeyEvent, input.DispatchKeyEventParams{
		Type: input.DispatchKeyEventTypeRawKeyDown, Key: "/", // no character: for the page
	})
	must(t, err)
	p.until(`document.activeElement.id === "prefix"`)
	p.run(chromedp.KeyEvent("invoices/"), chromedp.KeyEvent(kb.Enter))
	p.until(`location.search.includes("prefix=invoices%2F")`)
	p.has("tbody", "invoices/2026/12")
	if got := eval[int](p, `document.querySelectorAll("tbody tr").length`); got != 2 {
		t.Errorf("%d rows", got)
	}
}

// Ensure that a lock is taken away by the form, with the keyboard alone, and that what a person
// types stays when the page changes.
func TestForceUnlock(t *testing.T) {
	t.Parallel()
	s := busy(t)
	p := tab(t)
	p.open(s.url + "key?k=orders%2F4711")
	p.run(chromedp.Focus("#force summary"), chromedp.KeyEvent(kb.Enter))
	p.until(`document.querySelector("#force").open`)
	p.run(chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent("it hangs"))
	s.waits(s.session("late"), "orders/4711")
	p.has("main", "late")
	if got := eval[string](p, `document.activeElement.value`); got != "it hangs" {
		t.Fatalf("the field has %q", got)
	}
	p.run(chromedp.KeyEvent(kb.Enter))
	p.has("main table", "unlocked by force: it hangs")
	p.has("main .facts", "lock-delay", "importer-2")
	for info := range s.Locks() {
		if info.Key == "orders/4711" && info.DelayedUntil.IsZero() {
			t.Errorf("got %+v", info)
		}
	}
}

// Ensure that an open form takes the lock from the holder for which it was opened, or from none:
// updates of the page meanwhile change nothing in the form.
func TestForceUnlock_OpenFormStays(t *testing.T) {
	t.Parallel()
	s := newSite(t, &lockdui.Options{Actions: lockdui.ForceUnlockAndEnd})
	open := func(p *page, key string, chosen int) {
		p.open(s.url + "key?k=" + key)
		p.run(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`
			document.querySelector("#force").open = true
			document.querySelector("#reason").value = "it hangs"
			const select = document.querySelector("#force select")
			if (select) select.selectedIndex = %d
			0`, chosen)))
	}
	const press = `document.querySelector("#force button").click(), 0`

	sharing := &lockd.LockOptions{Mode: lockd.Shared}
	holders := []*lockd.Session{s.session("first"), s.session("hangs"), s.session("innocent")}
	for _, holder := range holders {
		_, err := holder.TryLock("shared", sharing)
		must(t, err)
	}
	p := tab(t)
	open(p, "shared", 1)
	must(t, holders[0].Close())
	p.has("main table", "closed by its owner")
	p.run(chromedp.Evaluate[chromedp.Void](press))
	p.has("main table", "unlocked by force: it hangs")
	for holder := range s.Snapshot().Holders("shared") {
		if holder.Session.Name != "innocent" {
			t.Errorf("%q holds the shared lock still", holder.Session.Name)
		}
	}

	hangs, next := s.holds("hangs", "alone"), s.session("innocent")
	s.waits(next, "alone")
	open(p, "alone", 0)
	must(t, hangs.Close())
	p.has("main table", "closed by its owner")
	p.run(chromedp.Evaluate[chromedp.Void](press))
	p.until(`document.body.innerText.includes("Nothing was changed")`)
	if e, _ := s.Get("alone"); e.Session != next.ID() {
		t.Errorf("the lock was taken from the session that was granted it meanwhile: %+v", e)
	}
}

// Ensure that no view scrolls sideways on a phone, and that no text is too small to be read there.
func TestPhone(t *testing.T) {
	t.Parallel()
	s := busy(t)
	p := tab(t)
	p.run(chromedp.EmulateViewport(360, 740))
	for _, view := range views {
		p.open(s.url + view)
		wide := eval[[]float64](p, `[document.documentElement.scrollWidth, innerWidth,
			...[...document.querySelectorAll("main *")].filter((e) => !e.closest(".drawing"))
			.map((e) => e.getBoundingClientRect().right)]`)
		if wide[1] != 360 || slices.Max(wide) > 360 {
			t.Errorf("%q is %v wide, of %v", view, slices.Max(wide), wide[1])
		}
		small := eval[[]string](p, texts+`.filter((e) => !e.closest("svg") &&
			parseFloat(getComputedStyle(e).fontSize) < 12).map((e) => e.outerHTML)`)
		if len(small) > 0 {
			t.Errorf("%q: too small: %q", view, small)
		}
	}
}

// texts are the elements of a page that have text of their own and are shown.
const texts = `[...document.querySelectorAll("body *")].filter((e) =>
	e.getClientRects().length > 0 && !["SCRIPT", "TITLE", "OPTION"].includes(e.tagName) &&
	[...e.childNodes].some((n) => n.nodeType === Node.TEXT_NODE && n.nodeValue.trim()))`

// Ensure that the page is dark for a person who prefers that, and that each text of each view has
// the contrast of WCAG AA to its background.
func TestDark(t *testing.T) {
	t.Parallel()
	s := busy(t)
	p := tab(t)
	for _, scheme := range []string{"light", "dark"} {
		p.scheme(scheme)
		for _, view := range views {
			p.open(s.url + view)
			got := eval[struct {
				Paper float64
				Count int
				Faint []string
			}](p, `(() => {
				const light = (color) => {
					const [r, g, b] = color.match(/[\d.]+/g).map((v) => v / 255)
						.map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
					return 0.2126 * r + 0.7152 * g + 0.0722 * b;
				};
				const paper = (e) => {
					for (; e; e = e.parentElement) {
						const box = e.matches("g.box, g.box *") &&
							e.closest(".box").querySelector("rect");
						if (box) return light(getComputedStyle(box).fill);
						const color = getComputedStyle(e).backgroundColor;
						if (!color.endsWith(", 0)")) return light(color);
					}
				};
				const contrast = (e) => {
					const style = getComputedStyle(e);
					const ink = light(e.closest("svg") ? style.fill : style.color), on = paper(e);
					return (Math.max(ink, on) + 0.05) / (Math.min(ink, on) + 0.05);
				};
				const all = `+texts+`;
				return {Paper: paper(document.body), Count: all.length,
					Faint: all.filter((e) => !(contrast(e) >= 4.5))
						.map((e) => contrast(e).toFixed(1) + " " + e.outerHTML.slice(0, 200))};
			})()`)
			if dark := got.Paper < 0.1; dark != (scheme == "dark") {
				t.Errorf("%s: %q: paper %v", scheme, view, got.Paper)
			}
			if len(got.Faint) > 0 || got.Count < 20 {
				t.Errorf("%s: %q: of %d texts: %q", scheme, view, got.Count, got.Faint)
			}
		}
	}
}

// Ensure that a page sends requests to its own server only, and does not violate its own policy.
func TestOwnOrigin(t *testing.T) {
	t.Parallel()
	s := busy(t)
	p := tab(t)
	_, err := chromedp.Call(p.ctx, cdppage.AddScriptToEvaluateOnNewDocument,
		cdppage.AddScriptToEvaluateOnNewDocumentParams{Source: `window.broken = [];
			addEventListener("securitypolicyviolation", (e) => window.broken.push(
				e.violatedDirective + " " + e.blockedURI));`})
	must(t, err)
	for _, view := range views {
		p.open(s.url + view)
		got := eval[struct{ Loaded, Broken []string }](p, `({
			Loaded: performance.getEntriesByType("resource").map((entry) => entry.name),
			Broken: window.broken})`)
		own := func(address string) bool { return strings.HasPrefix(address, s.url) }
		if len(got.Loaded) < 2 || !slices.ContainsFunc(got.Loaded, own) ||
			slices.ContainsFunc(got.Loaded, func(a string) bool { return !own(a) }) {
			t.Errorf("%q: loaded %q", view, got.Loaded)
		}
		if len(got.Broken) > 0 {
			t.Errorf("%q: forbidden by its own policy: %q", view, got.Broken)
		}
	}
	// Show that a violation of the policy would have been noticed.
	eval[bool](p, `document.body.setAttribute("onclick", "1"), true`)
	p.until(`window.broken.length === 1`)
}

// Ensure that the tables are there without JavaScript.
func TestWithoutJavaScript(t *testing.T) {
	t.Parallel()
	s := busy(t)
	p := tab(t)
	_, err := chromedp.Call(p.ctx, emulation.SetScriptExecutionDisabled,
		emulation.SetScriptExecutionDisabledParams{Value: true})
	must(t, err)
	for view, wanted := range map[string][]string{
		"":                    {"Longest wait", "importer-2", "pool/gpu"},
		"sessions":            {"gpu-a", "slot", "Ended last", "session destroyed"},
		"key?k=orders%2F4711": {"billing-1", "importer-2", "granted", "fence"},
		"graph":               {"Waits in chains", "invoices/2026/11", "report-7"},
		"file":                {"commits a second", "sessions not renewed in time"},
	} {
		p.run(chromedp.Navigate(s.url + view))
		text, err := chromedp.Run(p.ctx, chromedp.Text("body"))
		must(t, err)
		for _, want := range append(wanted, "Reload for the newest") {
			if !strings.Contains(text, want) {
				t.Errorf("%q: no %q in %s", view, want, text)
			}
		}
	}
}
