package consulapi

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"unicode"

	"github.com/lockd/lockd"
)

// Handler returns an http.Handler that serves Consul's HTTP API from the database. Before Handler
// returns, the node of this process is in the catalog, with a check serfHealth that passes. A nil
// opts means the defaults.
//
// A request ends with its context. When the database is closed, a request that waits is answered
// with the error. The handler holds nothing that has to be released. A list is sent in pieces, from
// one snapshot, so that a client that takes its answer slowly costs some 100 KiB, however much it
// asked for (H21). The handler sets no time limits and asks for no token; the server that uses it
// may. An http.ServeMux in front of it redirects requests for keys that are no clean paths, such as
// a//b, to other keys.
//
// The error is lockd.ErrInvalid for options that are out of their bounds, or lockd.ErrClosed,
// lockd.ErrFailed or lockd.ErrCommit.
func Handler(db *lockd.DB, opts *Options) (http.Handler, error) {
	r, err := newRouter(db, opts)
	if err != nil {
		return nil, fmt.Errorf("consulapi: %w", err)
	}
	return r, nil
}

// router finds the endpoint of a request, and sends its answer. It stands above all endpoints:
// nothing else knows all of them, and nothing else writes to the client.
type router struct {
	handler *handler
	routes  map[string][]method            // by path, without the /v1/
	around  map[string]map[string][]method // those with two slashes: by what is before and behind
}

func newRouter(db *lockd.DB, opts *Options) (*router, error) {
	if db == nil {
		panic("lockd: nil database")
	}
	complete, err := opts.complete(db)
	if err != nil {
		return nil, err
	}
	h := &handler{db: db, opts: complete}
	t := &router{
		handler: h, routes: make(map[string][]method),
		around: make(map[string]map[string][]method),
	}
	for _, routes := range []map[string][]method{
		h.agentRoutes(),
		h.catalogRoutes(),
		h.healthRoutes(),
		h.kvRoutes(),
		h.lockdRoutes(),
		h.queryRoutes(),
		h.sessionRoutes(),
		h.snapshotRoutes(),
		h.statusRoutes(),
		h.txnRoutes(),
	} {
		for path, methods := range routes {
			t.add(path, methods)
		}
	}
	err = h.register()
	h.opts.NodeID = h.self().ID // also if a client removes the node
	return t, err
}

// add adds a route. A path that only lacks its last slash is taken for the one that has it, since a
// redirect would turn a PUT into a GET (X12), unless it is a route itself.
func (t *router) add(path string, methods []method) {
	if before, behind, between := strings.Cut(path, "//"); between {
		t.around[before+"/"] = map[string][]method{"/" + behind: methods}
		return
	}
	t.routes[path] = methods
	if bare := strings.TrimSuffix(path, "/"); t.routes[bare] == nil {
		t.routes[bare] = methods
	}
}

// ServeHTTP answers one request. A panic ends only that request.
func (t *router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a, err := t.serve(r)
	if err == nil {
		t.handler.compressor.compress(&a, r, w.Header())
		err = t.guard(r, func() error { return a.write(w) })
	}
	if err != nil { // a part must not be taken for the whole
		panic(http.ErrAbortHandler)
	}
}

// serve returns the answer to one request, also if that tells of an error. Its only error is
// http.ErrAbortHandler, if an endpoint has panicked with that.
func (t *router) serve(r *http.Request) (a answer, err error) {
	in := &request{Request: r}
	err = t.guard(r, func() (err error) {
		if a, err = t.answer(in); err == nil {
			form := compact
			if in.has("pretty") {
				form = pretty
			}
			a.encode(form)
		}
		return err
	})
	switch err {
	case nil:
		return a, nil
	case http.ErrAbortHandler:
		return answer{}, err
	case errPanic:
		err = refuse(http.StatusInternalServerError, "Internal error")
	}
	return failed(err), nil
}

// errPanic is the error that guard returns for a panic.
var errPanic = errors.New("consulapi: panic")

// guard calls fn, and returns a panic as an error. It logs all but http.ErrAbortHandler.
func (t *router) guard(r *http.Request, fn func() error) (err error) {
	defer func() {
		switch cause := recover(); cause {
		case nil:
		case http.ErrAbortHandler:
			err = http.ErrAbortHandler
		default:
			t.handler.opts.Logger.Error("consulapi: panic in a request", "method", r.Method,
				"path", r.URL.Path, "panic", cause, "stack", string(debug.Stack()))
			err = errPanic
		}
	}()
	return fn()
}

// answer finds the endpoint, does what all endpoints have in common, and calls it.
func (t *router) answer(r *request) (answer, error) {
	if strings.ContainsFunc(r.URL.Path, isUnprintable) { // H3
		return answer{status: http.StatusBadRequest}, nil
	}
	path := r.URL.EscapedPath()
	methods, rest := t.route(path)
	if methods == nil {
		return notFound(path), nil
	}
	var err error
	r.rest = rest
	if r.query, err = url.ParseQuery(r.URL.RawQuery); err != nil { // H6
		return answer{status: http.StatusInternalServerError}, nil
	}
	at := slices.IndexFunc(methods, func(m method) bool { return m.name == r.Method })
	if at < 0 {
		return notAllowed(r.Method, methods), nil
	}
	if err := r.checkPlace(t.handler.opts.Datacenter); err != nil {
		return answer{}, err
	}
	if r.Method == http.MethodGet {
		if err := r.parseBlocking(); err != nil {
			return answer{}, err
		}
	}
	return methods[at].serve(r)
}

// notAllowed answers a request whose method the path does not have, and an OPTIONS request (H1).
func notAllowed(name string, methods []method) answer {
	allowed := []string{http.MethodOptions}
	for _, m := range methods {
		allowed = append(allowed, m.name)
	}
	a := answer{header: http.Header{"Allow": {strings.Join(allowed, ",")}}}
	if name != http.MethodOptions {
		a.status, a.contentType = http.StatusMethodNotAllowed, textPlain
		a.body = []byte("method " + name + " not allowed")
	}
	return a
}

// isUnprintable reports whether c is a character that Consul takes in no path.
func isUnprintable(c rune) bool { return !unicode.IsPrint(c) }

// route finds the methods of a path, and what follows the route, decoded once, or what stands in it
// where the route has two slashes. The path is not cleaned, so keys may have empty or dotted parts.
func (t *router) route(path string) (methods []method, rest string) {
	path, ok := strings.CutPrefix(path, "/v1/")
	if !ok {
		return nil, ""
	}
	if methods := t.routes[path]; methods != nil {
		return methods, ""
	}
	for end := min(len(path), longestPath) - 1; end >= 0; end-- { // the longest route counts
		if path[end] != '/' {
			continue
		}
		methods, rest = t.routes[path[:end+1]], path[end+1:]
		if methods == nil {
			continue
		}
		if last := strings.LastIndexByte(rest, '/'); last >= 0 {
			if around := t.around[path[:end+1]][rest[last:]]; around != nil {
				methods, rest = around, rest[:last]
			}
		}
		rest, _ = url.PathUnescape(rest) // EscapedPath is a valid encoding
		return methods, rest
	}
	return nil, ""
}

// longestPath is an upper bound of the length of a route.
const longestPath = 64

// notFound is the answer to a path that the API does not have (H18).
func notFound(path string) answer {
	a := answer{status: http.StatusNotFound, contentType: textPlain}
	switch {
	case path == "/":
		a.status, a.body = http.StatusOK, []byte("lockd: the API is under /v1/\n")
	case strings.HasPrefix(path, "/v1/"):
		a.body = []byte("Invalid URL path: not a recognized HTTP API endpoint\n")
	default:
		a.body = []byte("Invalid URL path: if attempting to use the HTTP API, " +
			"ensure the path starts with '/v1/'\n")
	}
	return a
}
