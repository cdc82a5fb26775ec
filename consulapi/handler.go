package consulapi

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unicode"

	"github.com/lockd/lockd"
)

// Where a noun's endpoints are: kv.go, session.go, … Each has a method …Routes that lists its
// paths, which newHandler takes up, and one function for each method and path. That takes a
// *request, whose query is parsed and whose rest is what follows the path, decoded once; it
// returns an answer, or an error that errors.go turns into one. A read goes through
// handler.read, which makes it a blocking query. Nobody else writes to the client.

// Handler returns an http.Handler that serves Consul's HTTP API from the database. Before it
// returns, the node of this process stands in the catalog, with a check serfHealth that passes.
// A nil opts means the defaults.
//
// Its calls end with their requests' contexts, and with ErrClosed when the database is closed; it
// holds nothing that would have to be given back. A list is sent in pieces, from one snapshot, so
// that a client that takes its answer slowly costs some 100 KiB, however much it asked for (H21).
// The handler sets no time limits and asks for no token: that is the server's to do.
//
// It returns an error that is lockd.ErrInvalid for options that are out of their bounds,
// lockd.ErrClosed, lockd.ErrFailed or lockd.ErrCommit.
func Handler(db *lockd.DB, opts *Options) (http.Handler, error) {
	h, err := newHandler(db, opts)
	if err != nil {
		return nil, fmt.Errorf("consulapi: %w", err)
	}
	return h, nil
}

// handler serves the API.
type handler struct {
	db      *lockd.DB
	opts    Options // complete
	routes  map[string][]method
	blocked atomic.Int64 // queries that wait

	repairing atomic.Bool // the node of this process will be put right

	compressors sync.Pool // of *flate.Writer, each of which is large
}

// method is what a path does for one HTTP method.
type method struct {
	name  string
	serve endpoint
}

// endpoint answers one request.
type endpoint func(r *request) (answer, error)

func newHandler(db *lockd.DB, opts *Options) (*handler, error) {
	complete, err := opts.complete(db)
	if err != nil {
		return nil, err
	}
	h := &handler{db: db, opts: complete, routes: make(map[string][]method)}
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
			h.routes[path] = methods
		}
	}
	if err := h.register(); err != nil {
		return nil, err
	}
	return h, nil
}

// ServeHTTP answers one request. A panic costs only that.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a, err := h.serve(r)
	if err == nil {
		h.compress(&a, r, w.Header())
		err = h.guard(r, func() error { return a.write(w) })
	}
	if err != nil { // a part must not be taken for the whole
		panic(http.ErrAbortHandler)
	}
}

// serve returns the answer to one request, whatever that is; its only error is
// http.ErrAbortHandler, if that is what was panicked with.
func (h *handler) serve(r *http.Request) (a answer, err error) {
	in := &request{Request: r}
	err = h.guard(r, func() (err error) {
		if a, err = h.answer(in); err == nil {
			a.encode(in)
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

// errPanic is what guard makes of a panic.
var errPanic = errors.New("consulapi: panic")

// guard calls fn, and logs a panic of its that is not meant to end the connection.
func (h *handler) guard(r *http.Request, fn func() error) (err error) {
	defer func() {
		switch cause := recover(); cause {
		case nil:
		case http.ErrAbortHandler:
			err = http.ErrAbortHandler
		default:
			h.opts.Logger.Error("consulapi: panic in a request", "method", r.Method,
				"path", r.URL.Path, "panic", cause, "stack", string(debug.Stack()))
			err = errPanic
		}
	}()
	return fn()
}

// answer finds the endpoint, does what is the same for all of them, and calls it.
func (h *handler) answer(r *request) (answer, error) {
	if strings.ContainsFunc(r.URL.Path, isUnprintable) { // H3
		return answer{status: http.StatusBadRequest}, nil
	}
	path := r.URL.EscapedPath()
	methods, rest, err := h.route(path)
	if err != nil || methods == nil {
		return notFound(path), err
	}
	allow := func() (names []string) {
		names = append(names, http.MethodOptions)
		for _, m := range methods {
			names = append(names, m.name)
		}
		return names
	}
	at := slices.IndexFunc(methods, func(m method) bool { return m.name == r.Method })
	if at < 0 { // H1
		a := answer{header: http.Header{"Allow": {strings.Join(allow(), ",")}}}
		if r.Method != http.MethodOptions {
			a.status, a.contentType = http.StatusMethodNotAllowed, textPlain
			a.body = []byte("method " + r.Method + " not allowed")
		}
		return a, nil
	}
	r.rest = rest
	if r.query, err = url.ParseQuery(r.URL.RawQuery); err != nil { // H6
		return answer{status: http.StatusInternalServerError}, nil
	}
	if err := h.checkPlace(r); err != nil {
		return answer{}, err
	}
	if r.Method == http.MethodGet {
		if err := r.parseBlocking(); err != nil {
			return answer{}, err
		}
	}
	return methods[at].serve(r)
}

// isUnprintable is true for what Consul takes in no path.
func isUnprintable(c rune) bool { return !unicode.IsPrint(c) }

// route finds the methods of a path, and what follows it, decoded once. A path is not cleaned, so
// keys may have empty or dotted parts; and one that lacks the slash at the end is taken for the
// one that has it, since a redirect would turn a PUT into a GET (X12).
func (h *handler) route(path string) (methods []method, rest string, err error) {
	path, ok := strings.CutPrefix(path, "/v1/")
	if !ok {
		return nil, "", nil
	}
	if methods := h.routes[path]; methods != nil {
		return methods, "", nil
	}
	for end := min(len(path), longestPath) - 1; end >= 0; end-- { // the longest counts
		if path[end] != '/' {
			continue
		}
		if methods := h.routes[path[:end+1]]; methods != nil {
			if rest, err = url.PathUnescape(path[end+1:]); err != nil {
				return nil, "", badRequest("%v", err)
			}
			return methods, rest, nil
		}
	}
	return h.routes[path+"/"], "", nil
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
