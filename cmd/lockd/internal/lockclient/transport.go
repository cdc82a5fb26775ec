package lockclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// patience is how long a server may send nothing, beyond what it was asked to wait.
const patience = 10 * time.Second

var (
	// ErrUnreachable is returned when there is no connection to the server's address, so that
	// no request was sent.
	ErrUnreachable = errors.New("no server can be reached")

	errSilent = fmt.Errorf("the server has sent nothing for %v beyond what it was asked to wait: "+
		"%w", patience, context.DeadlineExceeded)
)

// Error is an answer that is neither a success nor understood by the official client.
type Error struct {
	Status int
	Text   string // the body
}

// Error returns the beginning of the text, on one line: something else than a server of keys may
// have answered, with a whole page.
func (e *Error) Error() string {
	text := oneLine(e.Text)
	if text == "" {
		text = http.StatusText(e.Status)
	}
	return fmt.Sprintf("%d: %.300s", e.Status, text)
}

// oneLine returns a server's text as one line, for an error.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// transport gives up on a server that has become silent, and turns answers that the official client
// would misunderstand into errors.
type transport struct {
	next  http.RoundTripper
	name  string // of the server, for errors
	token string // that each request bears; empty: none
}

// RoundTrip sends a request.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	wait, err := time.ParseDuration(r.URL.Query().Get("wait"))
	if err != nil {
		wait = 0 // the server is not asked to wait
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	silent := time.AfterFunc(patience+wait+wait/16, func() { cancel(errSilent) })
	out := r.WithContext(ctx)
	if t.token != "" {
		out.Header = r.Header.Clone()
		out.Header.Set("X-Consul-Token", t.token)
	}
	response, err := t.next.RoundTrip(out)
	silent.Stop()
	if err != nil {
		defer cancel(nil)
		if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
			return nil, fmt.Errorf("%w at %s: %w", ErrUnreachable, t.name, dial)
		}
		return nil, blamed(ctx, err)
	}
	response.Body = &body{response.Body, t.name, ctx, cancel, silent}
	if understood(r, response) {
		return response, nil
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, 4<<10))
	if len(text) == 0 && response.StatusCode == http.StatusBadRequest &&
		strings.ContainsFunc(r.URL.Path, isUnprintable) { // a server does not say so
		text = []byte("a key with a character that cannot be printed is taken by no server")
	}
	return nil, errors.Join(&Error{response.StatusCode, string(text)}, err, response.Body.Close())
}

// isUnprintable reports whether c is a character that no server takes in a path.
func isUnprintable(c rune) bool { return !unicode.IsPrint(c) }

// blamed returns why the request was given up, or else the error.
func blamed(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// understood reports whether the official client knows what an answer says. The client takes any
// 404 to a read of keys for an absent key, and a missing index for 0. With an index of 0 the next
// read would not wait. No redirection is understood: the client would make a GET of a PUT, and the
// write would be lost without an error.
func understood(r *http.Request, response *http.Response) bool {
	is := func(path string) bool { return strings.Contains(r.URL.Path, path) }
	status := response.StatusCode
	switch {
	case r.Method == http.MethodGet && is("/v1/kv/"):
		index, err := strconv.ParseUint(response.Header.Get("X-Consul-Index"), 10, 64)
		return err == nil && index > 0 && (status == http.StatusOK || status == http.StatusNotFound)
	case is("/v1/txn"):
		return status == http.StatusOK || status == http.StatusConflict
	}
	return status == http.StatusOK
}

// body is the body of an answer. The server may be silent between two reads, but not during one.
type body struct {
	io.ReadCloser
	server string // its name, for errors
	ctx    context.Context
	cancel context.CancelCauseFunc
	silent *time.Timer
}

// Read reads, and gives up if nothing comes.
func (b *body) Read(p []byte) (int, error) {
	b.silent.Reset(patience)
	defer b.silent.Stop()
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = fmt.Errorf("read the answer of %s: %w", b.server, blamed(b.ctx, err))
	}
	return n, err
}

// Close ends the request.
func (b *body) Close() error {
	defer b.cancel(nil)
	return b.ReadCloser.Close()
}
