package main

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"
)

// limits are what one client, or many, can make the server wait for or keep.
type limits struct {
	header      time.Duration // for the header of a request, and for the first one of a connection
	headerBytes int
	body        time.Duration // for a body, and for a client that takes an answer
	bodyRate    int64         // bytes for which there is a second more
	ignored     int64         // bytes of a body that nothing is done with
	idle        time.Duration // between two requests
	connections int           // at a time
}

// defaultLimits leave room for the queries that may be blocked.
var defaultLimits = limits{
	header:      10 * time.Second,
	headerBytes: 64 << 10,
	body:        30 * time.Second,
	bodyRate:    64 << 10,
	ignored:     64 << 10,
	idle:        2 * time.Minute,
	connections: 16_384,
}

// httpServer is an http.Server that asks for a token and keeps limits.
type httpServer struct {
	*http.Server
	crowd  *crowd
	cancel context.CancelFunc // ends what requests wait for
}

// newServer returns a server of the API. An empty token means that none is asked for.
func newServer(l limits, token string, logger *slog.Logger, api http.Handler) *httpServer {
	requests, cancel := context.WithCancel(context.Background())
	handler := l.bounded(api)
	if token != "" {
		handler = guarded(token, handler)
	}
	crowd := newCrowd(l.connections)
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: l.header,
		MaxHeaderBytes:    l.headerBytes,
		IdleTimeout:       l.idle,
		ConnState:         crowd.changed,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
		BaseContext:       func(net.Listener) context.Context { return requests },
		Protocols:         new(http.Protocols), // one, so that there is one set of limits
	}
	server.Protocols.SetHTTP1(true)
	return &httpServer{server, crowd, cancel}
}

// stop accepts nothing more, ends the queries that wait, and gives the other requests that time.
func (s *httpServer) stop(patience time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s.cancel()
	if err := s.Shutdown(ctx); errors.Is(err, context.DeadlineExceeded) {
		return s.Close()
	} else if err != nil {
		return err
	}
	return nil
}

// local refuses requests that name a host by a domain: a page of a browser could have its own
// stand for this machine, and would get by it what only programs on this machine are to get. An
// address can be nobody's domain, and neither can a name without a dot.
func local(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isLocal(r.Host) {
			http.Error(w, fmt.Sprintf("Permission denied: host %q may be a name that a stranger "+
				"gave this machine: ask for localhost or an address, or serve with a --token-file",
				r.Host), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isLocal reports whether the host, with or without a port, is no domain that anybody can own.
func isLocal(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return !strings.Contains(host, ".") || strings.HasSuffix(strings.ToLower(host), ".localhost") ||
		net.ParseIP(host) != nil
}

// guarded lets only those requests through that bear the token. How long it takes to refuse one
// says nothing about the token.
func guarded(token string, next http.Handler) http.Handler {
	want := sha256.Sum256([]byte(token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scheme, bearer, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		given := sha256.Sum256([]byte(r.Header.Get("X-Consul-Token")))
		other := sha256.Sum256([]byte(bearer))
		allowed := subtle.ConstantTimeCompare(given[:], want[:])
		if strings.EqualFold(scheme, "Bearer") {
			allowed |= subtle.ConstantTimeCompare(other[:], want[:])
		}
		if allowed != 1 {
			http.Error(w, "Permission denied", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// bounded gives bodies and answers their time. A body of a request that has none in the API is
// read first: as long as one is unread, nothing tells that the client has gone.
func (l limits) bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		if r.Body != nil && r.Body != http.NoBody {
			body := &timedBody{
				ReadCloser: r.Body, control: control, limits: l, until: time.Now().Add(l.body),
			}
			r.Body = body
			if err := body.extend(); err != nil {
				panic(http.ErrAbortHandler) // the connection is gone
			}
		}
		takesBody := r.Method == http.MethodPut || r.Method == http.MethodPost
		if !takesBody && r.Body != nil {
			n, err := io.Copy(io.Discard, io.LimitReader(r.Body, l.ignored+1))
			if err != nil || n > l.ignored {
				w.Header().Set("Connection", "close")
				http.Error(w, "Request body too large or too slow",
					http.StatusRequestEntityTooLarge)
				return
			}
		}
		next.ServeHTTP(&timedWriter{ResponseWriter: w, control: control, limits: l}, r)
	})
}

// timedBody is a body with a deadline, which every byte moves a little.
type timedBody struct {
	io.ReadCloser
	control *http.ResponseController
	limits  limits
	until   time.Time
	read    int64
}

// Read reads, and moves the deadline. At the end net/http takes it away.
func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.read += int64(n); err == nil {
		err = b.extend()
	}
	return n, err
}

func (b *timedBody) extend() error {
	extra := time.Duration(b.read) * time.Second / time.Duration(b.limits.bodyRate)
	return b.control.SetReadDeadline(b.until.Add(extra))
}

// timedWriter is an answer each of whose pieces has a deadline.
type timedWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	limits  limits
}

// Write writes a piece.
func (w *timedWriter) Write(p []byte) (int, error) {
	extra := time.Duration(len(p)) * time.Second / time.Duration(w.limits.bodyRate)
	deadline := time.Now().Add(w.limits.body + extra)
	if err := w.control.SetWriteDeadline(deadline); err != nil {
		return 0, err
	}
	return w.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController.
func (w *timedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
