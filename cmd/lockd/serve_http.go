package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// limits bound what one client, or many, can make the server wait for or keep.
type limits struct {
	header      time.Duration // for the header of a request, and for the first one of a connection
	headerBytes int
	body        time.Duration // for a body, and for a client that takes an answer
	bodyRate    int64         // bytes that earn one more second
	ignored     int64         // bytes of a body that is not used
	idle        time.Duration // between two requests
	connections int           // at a time
	share       int           // of connections, for one client
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
	share:       200, // as in Consul
}

// spareFiles is how many files are for other things than connections.
const spareFiles = 64

// within returns the limits of a process that may have that many files open.
func (l limits) within(files int) limits {
	l.connections = min(l.connections, max(files-spareFiles, files/2))
	return l
}

// earned returns how much longer a client may take for that many bytes than for none.
func (l limits) earned(bytes int64) time.Duration {
	return time.Duration(bytes) * time.Second / time.Duration(l.bodyRate)
}

// httpServer is an http.Server that has a guard and keeps limits.
type httpServer struct {
	*http.Server
	crowd  *crowd
	cancel context.CancelFunc // ends what requests wait for
}

// connKey is the key of a request's context under which its connection is.
type connKey struct{}

// newServer returns a server of the API. The guard refuses requests before anything else is done
// for them.
func newServer(
	l limits, guard func(http.Handler) http.Handler, logger *slog.Logger, api http.Handler,
) *httpServer {
	requests, cancel := context.WithCancel(context.Background())
	crowd := newCrowd(l.connections, l.share)
	bounded := l.bounded(api)
	admitted := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		crowd.admit(r.Context().Value(connKey{}).(net.Conn))
		bounded.ServeHTTP(w, r)
	})
	server := &http.Server{
		Handler:           guard(admitted),
		ReadHeaderTimeout: l.header,
		MaxHeaderBytes:    l.headerBytes,
		IdleTimeout:       l.idle,
		ConnState:         crowd.changed,
		ErrorLog:          newHTTPLog(logger),
		BaseContext:       func(net.Listener) context.Context { return requests },
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, conn)
		},
		Protocols: new(http.Protocols), // one, so that there is one set of limits

		DisableGeneralOptionsHandler: true, // which has no guard and no limits
	}
	server.Protocols.SetHTTP1(true)
	return &httpServer{server, crowd, cancel}
}

// Serve serves the listener's connections until the server is stopped.
func (s *httpServer) Serve(l net.Listener) error {
	return s.Server.Serve(crowdListener{l, s.crowd})
}

// stop accepts nothing more, ends the queries that wait, and gives other requests patience to end.
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

// bounded limits the time for bodies and answers. A body that the API does not use is read first:
// while a body is unread, nothing tells that the client has gone.
func (l limits) bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		answer := &timedWriter{ResponseWriter: w, control: control, limits: l}
		// For what is sent after the handler: an answer without a body, or the rest of one. If it
		// fails, the connection is gone.
		defer func() { _, _ = answer.extend() }()
		if r.Body != nil && r.Body != http.NoBody {
			body := &timedBody{
				ReadCloser: r.Body, control: control, limits: l, until: time.Now().Add(l.body),
			}
			// In a copy: net/http looks at the body of its own request to see whether a client
			// waits for 100 Continue, and so sends no body after a refusal.
			r = r.WithContext(r.Context())
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
		next.ServeHTTP(answer, r)
	})
}

// timedBody is a body with a deadline that every byte moves a little.
type timedBody struct {
	io.ReadCloser
	control *http.ResponseController
	limits  limits
	until   time.Time
	read    int64
}

// Read reads, and moves the deadline. At the end net/http removes the deadline.
func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.read += int64(n); err == nil {
		err = b.extend()
	}
	return n, err
}

func (b *timedBody) extend() error {
	return b.control.SetReadDeadline(b.until.Add(b.limits.earned(b.read)))
}

// timedWriter is an answer that the client has to take in time. Each piece earns the client more
// time, at bodyRate; only the time that Write waited for the client is counted against it.
type timedWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	limits  limits
	written int64
	waited  time.Duration
}

// Write writes a piece.
func (w *timedWriter) Write(p []byte) (int, error) {
	w.written += int64(len(p))
	start, err := w.extend()
	if err != nil {
		return 0, err
	}
	n, err := w.ResponseWriter.Write(p)
	w.waited += time.Since(start)
	return n, err
}

// extend moves the deadline, and returns what time it is.
func (w *timedWriter) extend() (now time.Time, err error) {
	now = time.Now()
	allowed := w.limits.body + w.limits.earned(w.written) - w.waited
	return now, w.control.SetWriteDeadline(now.Add(allowed))
}

// Unwrap is for http.ResponseController.
func (w *timedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
