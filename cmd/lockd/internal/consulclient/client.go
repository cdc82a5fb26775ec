package consulclient

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Options configures a Client. The zero value means a server at the default address.
type Options struct {
	// Address is host:port, a URL that begins with http:// or https://, or unix:// and the path of
	// a socket. The default is 127.0.0.1:8500.
	Address string

	// Token is sent with each request, if it is not empty.
	Token string

	// TLS is used for https. Nil means the system's defaults.
	TLS *tls.Config

	// Transport sends the requests. Nil means a new http.Transport.
	Transport http.RoundTripper
}

// SocketScheme is what an address begins with that is the path of a socket.
const SocketScheme = "unix://"

const (
	defaultAddress = "127.0.0.1:8500"

	// patience is how long a server may take for an answer, on top of what it was asked to wait.
	patience = 10 * time.Second
)

// Client sends requests to one server. Its methods may be called by many goroutines. The zero
// value is not usable; New gives one.
type Client struct {
	name  string // of the server, for errors
	base  *url.URL
	token string
	http  *http.Client
}

// New returns a client. It sends nothing yet. It returns an error for an address that is none.
func New(opts Options) (*Client, error) {
	address := opts.Address
	if address == "" {
		address = defaultAddress
	}
	socket, isSocket := strings.CutPrefix(address, SocketScheme)
	switch {
	case isSocket && socket == "":
		return nil, fmt.Errorf("address %q has no path", address)
	case isSocket:
		address = "http://localhost" // for the header Host
	case !strings.Contains(address, "://"):
		address = "http://" + address
	}
	base, err := url.Parse(address)
	switch {
	case err != nil:
		return nil, fmt.Errorf("address: %w", err)
	case base.Scheme != "http" && base.Scheme != "https":
		return nil, fmt.Errorf("address %q begins with none of http://, https:// and unix://",
			base.Redacted())
	case base.Host == "" || base.RawQuery != "" || base.Fragment != "" || base.User != nil:
		return nil, fmt.Errorf("address %q is not of the form host:port", base.Redacted())
	}
	transport := opts.Transport
	if transport == nil {
		own := http.DefaultTransport.(*http.Transport).Clone()
		own.TLSClientConfig = opts.TLS
		if isSocket {
			own.Proxy = nil
			own.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "unix", socket)
			}
		}
		transport = own
	}
	name := base.String()
	if isSocket {
		name = SocketScheme + socket
	}
	return &Client{name: name, base: base, token: opts.Token, http: &http.Client{
		Transport: transport,
		// A PUT that is redirected becomes a GET, and nobody notices.
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}}, nil
}

// Close closes the connections that are idle.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// ErrUnreachable is returned when there is no connection to the server's address, so that nothing
// was asked of it.
var ErrUnreachable = errors.New("no server can be reached")

// Error is an answer that is neither success nor one of the refusals that have an error of their
// own. The zero value is none.
type Error struct {
	Method, Path string // the path as it was sent, escaped
	Status       int
	Text         string // the body
}

// Error returns the text. A path that is long is cut: it has a key in it.
func (e *Error) Error() string {
	text := oneLine(e.Text)
	if text == "" {
		text = http.StatusText(e.Status)
	}
	return fmt.Sprintf("%s %.120s: %d: %s", e.Method, e.Path, e.Status, text)
}

// oneLine returns a server's text as one line, for an error that has it.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// lasting reports whether the same request would be refused again: the server understood it.
func lasting(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Status < http.StatusInternalServerError
}

// Wait makes a read wait until the index of what it reads is above Index, for about For at most.
// The zero value does not wait.
type Wait struct {
	Index uint64
	For   time.Duration
}

// request is one request. The body is sent as it is if it is a []byte, else as JSON.
type request struct {
	method string
	path   string // escaped, without a leading slash
	query  url.Values
	body   any
	wait   Wait
}

// answer is what came back.
type answer struct {
	status int
	index  uint64 // X-Consul-Index; 0 if there is none
	body   []byte
}

// do sends a request and reads the answer. Statuses other than 200 and those given are errors.
func (c *Client) do(ctx context.Context, r request, statuses ...int) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, patience+r.wait.For+r.wait.For/16)
	defer cancel()
	response, err := c.send(ctx, r)
	if err != nil {
		return answer{}, err
	}
	body, err := io.ReadAll(response.Body)
	err = errors.Join(err, response.Body.Close())
	if err != nil {
		return answer{}, fmt.Errorf("%s %s: read the answer: %w", r.method, "/"+r.path, err)
	}
	a := answer{status: response.StatusCode, body: body}
	for _, status := range append(statuses, http.StatusOK) {
		if a.status == status {
			a.index, err = indexOf(response.Header)
			return a, err
		}
	}
	return answer{}, &Error{r.method, "/" + r.path, a.status, string(body)}
}

// send sends a request. The body of the answer is for the caller to close.
func (c *Client) send(ctx context.Context, r request) (*http.Response, error) {
	req, err := c.build(ctx, r)
	if err != nil {
		return nil, err
	}
	response, err := c.http.Do(req)
	if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
		return nil, fmt.Errorf("%w at %s: %w", ErrUnreachable, c.name, dial)
	}
	return response, err
}

func (c *Client) build(ctx context.Context, r request) (*http.Request, error) {
	query := r.query
	if query == nil {
		query = make(url.Values)
	}
	if r.wait.Index > 0 {
		query.Set("index", strconv.FormatUint(r.wait.Index, 10))
		query.Set("wait", strconv.FormatInt(max(1, r.wait.For.Milliseconds()), 10)+"ms")
	}
	var body io.Reader
	switch b := r.body.(type) {
	case nil:
	case []byte:
		body = bytes.NewReader(b)
	default:
		text, err := json.Marshal(b)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(text)
	}
	address := strings.TrimSuffix(c.base.String(), "/") + "/" + r.path
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, r.method, address, body)
	if err == nil && c.token != "" {
		req.Header.Set("X-Consul-Token", c.token)
	}
	return req, err
}

func indexOf(header http.Header) (uint64, error) {
	text := header.Get("X-Consul-Index")
	if text == "" {
		return 0, nil
	}
	index, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("header X-Consul-Index: %w", err)
	}
	return index, nil
}

// decode reads the JSON of an answer into v.
func (a answer) decode(v any) error {
	if err := json.Unmarshal(a.body, v); err != nil {
		return fmt.Errorf("answer %.80q: %w", a.body, err)
	}
	return nil
}

// lingering returns a context that lasts a little longer than its parent: what comes of a request
// that has been sent is worth that.
func lingering(parent context.Context) (context.Context, context.CancelFunc) {
	const longer = time.Second
	ctx, cancel := context.WithCancel(context.WithoutCancel(parent))
	stop := context.AfterFunc(parent, func() {
		_ = pause(ctx, longer)
		cancel()
	})
	return ctx, func() {
		stop()
		cancel()
	}
}

// pause waits, and returns ctx's error if that ends first.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
