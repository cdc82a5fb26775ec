package lockdui_test

import (
	"errors"
	"html"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/lockdtest"
	"github.com/lockd/lockd/lockdui"
)

// views are the addresses of all pages.
var views = []string{"/", "/sessions", "/key?k=k", "/graph", "/file"}

// Ensure that a nil database is refused at once, with a text that says so.
func TestHandler_NilPanics(t *testing.T) {
	defer func() {
		if text, _ := recover().(string); text != "lockd: nil database" {
			t.Errorf("panic: got %q", text)
		}
	}()
	_, _ = lockdui.Handler(nil, nil)
}

// Ensure that no page has a script or a style inline, that every page forbids both, and that
// nothing leads to another origin.
func TestHandler_ContentSecurityPolicy(t *testing.T) {
	run(t, &lockdui.Options{Actions: lockdui.ForceUnlockAndEnd}, nil, func(h *harness) {
		holder := h.holds("holder", "k")
		h.waits(h.holds("waiter", "other"), "k")
		h.waits(h.session("third"), "other")
		inline := regexp.MustCompile(`(?i)<style|\sstyle=|\son\w+=|<script(?:>| [^s])|javascript:`)
		outside := regexp.MustCompile(`(?i)(?:src|href|action)="(?:[a-z]+:|//|/)[^"]*"`)
		for _, target := range append(views, "/sessions?id="+holder.ID().String()) {
			r := h.get(target)
			policy := r.header.Get("Content-Security-Policy")
			for _, rule := range []string{"default-src 'none';", "script-src 'self';",
				"style-src 'self';", "frame-ancestors 'none'", "form-action 'self';",
				"base-uri 'none';"} {
				if !strings.Contains(policy, rule) {
					t.Errorf("%s: no %q in %q", target, rule, policy)
				}
			}
			if strings.Contains(policy, "unsafe") {
				t.Errorf("%s: %q", target, policy)
			}
			if found := inline.FindString(r.body); found != "" {
				t.Errorf("%s has %q", target, found)
			}
			if found := outside.FindString(r.body); found != "" {
				t.Errorf("%s has %q", target, found)
			}
			if got := r.header.Get("X-Content-Type-Options"); got != "nosniff" {
				t.Errorf("%s: %q", target, got)
			}
		}
		for name, kind := range map[string]string{
			"/style.css": "text/css", "/live.js": "text/javascript", "/icon.svg": "image/svg+xml",
		} {
			if got := h.get(name).header.Get("Content-Type"); !strings.HasPrefix(got, kind) {
				t.Errorf("%s is %q", name, got)
			}
		}
		for _, name := range []string{"/none", "/page.html", "/none.css", "/..", "/assets/.."} {
			if got := h.do(request("GET", name, nil)); got.code != http.StatusNotFound {
				t.Errorf("%s: %d", name, got.code)
			}
		}
	})
}

// hostile are keys and names with a meaning in HTML, in a script, in an address or in a stream.
var hostile = []string{
	`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, "\xff\xfe\x00", "a\u202eb",
	"new\r\nline", "data: x\n\nevent: view\ndata: <u>", `';alert(1)//`, "{{.}}", "../../etc",
	"a&b=c", "javascript:alert(1)", " ", "%2F%00", strings.Repeat("long", 3_000), "ключ", "?#/",
	`"quoted"`, "]]>", "</svg><svg onload=alert(1)>",
}

// Ensure that keys and names of any bytes are shown as text, and that links to them lead to them.
func TestHandler_HostileNames(t *testing.T) {
	run(t, &lockdui.Options{Actions: lockdui.ForceUnlockAndEnd}, nil, func(h *harness) {
		for _, text := range hostile {
			h.waits(h.holds(text, text), text)
		}
		marks := regexp.MustCompile(`(?i)<script>|<img|<u>|<svg onload|\x00|\xff|\x{202e}`)
		for _, target := range append(views, "/?prefix=%22%3E%3Cscript%3E",
			"/sessions?filter=%22%3E%3Cu%3E") {
			r := h.get(target)
			if found := marks.FindString(r.body); found != "" || !utf8.ValidString(r.body) {
				t.Errorf("%s has %q, or is no UTF-8", target, found)
			}
			s := h.follow(target)
			if found := marks.FindString(s.view().data); found != "" {
				t.Errorf("the stream of %s has %q", target, found)
			}
			s.idle()
			s.end()
		}
		href := regexp.MustCompile(`<td class="first"><a class="key" href="(key\?k=[^"]*)"`)
		all := href.FindAllStringSubmatch(h.get("/?sort=key").body, -1)
		if len(all) != len(hostile) {
			t.Fatalf("%d links to %d keys", len(all), len(hostile))
		}
		seen := make(map[string]bool)
		for _, m := range all {
			r := h.shows("/"+html.UnescapeString(m[1]), "exclusive", "fence", "granted")
			fence := regexp.MustCompile(`name="fence" value="(\d+)"`).FindStringSubmatch(r.body)
			if fence == nil || seen[fence[1]] {
				t.Fatalf("%s does not lead to a lock of its own", m[1])
			}
			seen[fence[1]] = true
		}
	})
}

// Ensure that a request with a foreign host name is refused, unless all hosts are allowed.
func TestHandler_Hosts(t *testing.T) {
	ask := func(h *harness, host string) int {
		r := request("GET", "/", nil)
		r.Host = host
		return h.do(r).code
	}
	run(t, nil, nil, func(h *harness) {
		for host, want := range map[string]int{
			"localhost": 200, "localhost:80": 200, "127.0.0.1:8500": 200, "[::1]:80": 200,
			"10.1.2.3": 200, "app.localhost": 200, "LOCALHOST": 200, "": 200,
			"evil.example": 403, "127.0.0.1.evil.example": 403, "localhost.evil.example:80": 403,
		} {
			if got := ask(h, host); got != want {
				t.Errorf("%s: %d", host, got)
			}
		}
	})
	run(t, &lockdui.Options{Hosts: lockdui.AnyHost}, nil, func(h *harness) {
		if got := ask(h, "locks.example"); got != 200 {
			t.Errorf("got %d", got)
		}
	})
}

// Ensure that pages of other origins get nothing, but may have a link to a page.
func TestHandler_OtherOrigins(t *testing.T) {
	run(t, nil, nil, func(h *harness) {
		for name, c := range map[string]struct {
			header map[string]string
			want   int
		}{
			"typed":       {map[string]string{"Sec-Fetch-Site": "none"}, 200},
			"own":         {map[string]string{"Sec-Fetch-Site": "same-origin"}, 200},
			"fetched":     {map[string]string{"Sec-Fetch-Site": "cross-site"}, 403},
			"of a sister": {map[string]string{"Sec-Fetch-Site": "same-site"}, 403},
			"old browser": {map[string]string{"Origin": "http://evil.example"}, 403},
			"framed": {map[string]string{"Sec-Fetch-Site": "cross-site",
				"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}, 403},
			"linked": {map[string]string{"Sec-Fetch-Site": "cross-site",
				"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, 200},
		} {
			r := request("GET", "/", nil)
			for k, v := range c.header {
				r.Header.Set(k, v)
			}
			if got := h.do(r).code; got != c.want {
				t.Errorf("%s: %d", name, got)
			}
		}
	})
}

// Ensure that the pages work wherever they are mounted.
func TestHandler_Mounted(t *testing.T) {
	run(t, nil, nil, func(h *harness) {
		h.holds("holder", "k")
		whole := h.Handler
		for name, handler := range map[string]http.Handler{
			"as it is":            whole,
			"stripped":            http.StripPrefix("/debug/lockd", whole),
			"stripped with its /": http.StripPrefix("/debug/lockd/", whole),
		} {
			h.Handler = handler
			for _, view := range views {
				if got := h.do(request("GET", "/debug/lockd"+view, nil)); got.code != 200 {
					t.Errorf("%s: %s: %d", name, view, got.code)
				}
			}
		}
	})
}

// Ensure that pages allow only reads, that forms allow only POST, and that a refusal says so.
func TestHandler_Methods(t *testing.T) {
	run(t, nil, nil, func(h *harness) {
		for _, method := range []string{"POST", "PUT", "DELETE", "OPTIONS"} {
			r := h.do(request(method, "/sessions", nil))
			if r.code != 405 || r.header.Get("Allow") != "GET, HEAD" {
				t.Errorf("%s: %d, %q", method, r.code, r.header.Get("Allow"))
			}
		}
		r := h.do(request("GET", "/force-unlock", nil))
		if r.code != 405 || r.header.Get("Allow") != "POST" {
			t.Errorf("%d, %q", r.code, r.header.Get("Allow"))
		}
		if r := h.do(request("HEAD", "/", nil)); r.code != 200 {
			t.Errorf("HEAD: %d", r.code)
		}
	})
}

// Ensure that a page that says what went wrong does not follow the database: it has no stream, and
// would say that it is cut off.
func TestHandler_ProblemStandsStill(t *testing.T) {
	run(t, allowed, nil, func(h *harness) {
		f := h.formOn("/sessions?id=" + h.session("s").ID().String())
		f.fields.Set("session", "00000000-0000-0000-0000-000000000001")
		for name, r := range map[string]reply{
			"a wrong ID":        h.do(request("GET", "/sessions?id=x", nil)),
			"an action refused": h.send("/end-session", f, "", ""),
		} {
			if r.code < 400 || !strings.Contains(r.body, "<h1>") {
				t.Fatalf("%s: %d %s", name, r.code, r.body)
			}
			for _, part := range []string{"<script", `id="stream"`} {
				if strings.Contains(r.body, part) {
					t.Errorf("%s: the page has %s", name, part)
				}
			}
		}
	})
}

// Ensure that invalid options are refused.
func TestHandler_Options(t *testing.T) {
	db := lockdtest.New(t, nil)
	for _, opts := range []lockdui.Options{{Actions: 2}, {Hosts: 2}} {
		h, err := lockdui.Handler(db.DB, &opts)
		if h != nil || !errors.Is(err, lockd.ErrInvalid) ||
			!strings.HasPrefix(err.Error(), "lockdui: ") {
			t.Errorf("%+v: %v, %v", opts, h, err)
		}
	}
}

// Ensure that a host whose name only ends in the letters of localhost is refused: a stranger can
// have such a name.
func TestHandler_HostsThatEndInLocalhost(t *testing.T) {
	run(t, nil, nil, func(h *harness) {
		for _, host := range []string{"evillocalhost", "evil-localhost:80"} {
			r := request("GET", "/", nil)
			r.Host = host
			if got := h.do(r).code; got != http.StatusForbidden {
				t.Errorf("%s: %d", host, got)
			}
		}
	})
}
