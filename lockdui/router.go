package lockdui

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/lockd/lockd"
)

// The last part of a path names the page. The page's content comes from its view, a function in
// handler.views. A content has instants and no ages, so that two contents are equal unless
// something has happened. A browser that asks for text/event-stream at the same address gets that
// page again whenever its content has changed (stream.go).

// Handler returns an http.Handler that shows the database. Mount it at a path that ends in a slash,
// with or without http.StripPrefix: it looks only at the last part of the path. A nil opts means
// the defaults.
//
// The handler asks for no token and no login: a server in front of it has to, in particular if
// Options.Actions allows any action. It refuses requests that a browser sends for a page of another
// origin, and requests for a host that Options.Hosts does not allow. An action also has to bear a
// token that only the handler's own pages have.
//
// Neither Handler nor the pages wait for a running function of an Update, so that a person sees
// what such a function holds up. Handler starts a goroutine, which ends when the database is
// closed. After that the pages show the last state. The handler sets no time limits, and answers at
// most 64 streams at a time.
//
// Handler returns lockd.ErrInvalid for options that are out of their bounds.
func Handler(db *lockd.DB, opts *Options) (http.Handler, error) {
	if db == nil {
		panic("lockd: nil database")
	}
	complete, err := opts.complete()
	if err != nil {
		return nil, fmt.Errorf("lockdui: %w", err)
	}
	h := &handler{db: db, opts: complete, now: complete.Now, roster: newRoster()}
	h.guard.init(complete.Hosts)
	_, _ = rand.Read(h.secret[:]) // never fails
	stats := db.Stats()
	h.meter.init(h.now(), stats)
	h.memory = stats.FileSize == 0 && stats.Err == nil // a database that is closed has no size
	h.views = map[string]view{
		"": h.locks, "sessions": h.sessions, "key": h.key, "graph": h.graph, "file": h.file,
	}
	go h.roster.follow(db, stats.Index)
	return h, nil
}

// ServeHTTP answers one request. A panic ends only that request.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer func() {
		switch cause := recover(); cause {
		case nil:
		case http.ErrAbortHandler:
			panic(cause)
		default:
			h.opts.Logger.Error("lockdui: panic in a request", "path", r.URL.Path,
				"panic", cause, "stack", string(debug.Stack()))
			panic(http.ErrAbortHandler) // or the client would take a part for the whole page
		}
	}()
	header := w.Header()
	header.Set("Content-Security-Policy", contentSecurityPolicy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "same-origin") // a key is in the address
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	if reason := h.guard.refuses(r); reason != "" {
		http.Error(w, reason, http.StatusForbidden)
		return
	}
	name := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	if action, ok := actions[name]; ok {
		h.act(w, r, action)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "method "+r.Method+" not allowed", http.StatusMethodNotAllowed)
		return
	}
	view, ok := h.views[name]
	switch {
	case !ok && strings.Contains(name, "."):
		serveAsset(w, r, name)
	case !ok:
		http.NotFound(w, r)
	case strings.Contains(r.Header.Get("Accept"), eventStream):
		h.stream(w, r, view)
	default:
		h.page(w, r, view)
	}
}

const contentSecurityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; " +
	"img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; " +
	"frame-ancestors 'none'"

// serveAsset answers with a file that the pages refer to.
func serveAsset(w http.ResponseWriter, r *http.Request, name string) {
	content, err := assets.ReadFile("assets/" + name)
	if err != nil || strings.HasSuffix(name, ".html") {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Cache-Control", "no-cache")
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(content))
}

// page answers with a whole page.
func (h *handler) page(w http.ResponseWriter, r *http.Request, view view) {
	now := h.now()
	body, err := view(r, now)
	status := http.StatusOK
	if err != nil {
		status = http.StatusBadRequest
		body = problem{"This page cannot be shown", printed(err.Error())}
	}
	h.answer(w, r, status, body)
}
