package lockclient

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"
)

// Client is the official client of one server, but every request has an end. Its methods may be
// called by many goroutines. The zero value is not usable; New gives one.
type Client struct {
	*api.Client
	name   string     // of the server, for errors
	config api.Config // as NewClient has completed it
	idle   func()     // closes the connections that are idle
}

// New returns a client. It sends nothing yet. The address has to be a URL of http, https or unix.
// It returns the error of an invalid TLS configuration.
func New(config api.Config) (*Client, error) {
	if config.HttpAuth == nil { // NewClient takes all but this from the environment
		config.HttpAuth = api.DefaultConfig().HttpAuth
	}
	name, token := config.Address, config.Token
	official, err := api.NewClient(&config)
	if err != nil {
		return nil, err
	}
	// NewClient has set config.HttpClient, which the official client uses for all requests.
	shared := config.HttpClient
	next := http.Client{Transport: shared.Transport}
	// The transport sends the token that was given. If CONSUL_HTTP_TOKEN has the same token, the
	// official client prefers that of CONSUL_HTTP_TOKEN_FILE.
	shared.Transport = &transport{next.Transport, name, cmp.Or(token, config.Token)}
	return &Client{official, name, config, next.CloseIdleConnections}, nil
}

// Close closes the connections that are idle.
func (c *Client) Close() { c.idle() }

// send sends a request that the official client does not have. The caller has to close the body of
// the answer.
func (c *Client) send(
	ctx context.Context, method, path string, query url.Values, body io.Reader,
) (*http.Response, error) {
	if c.config.Namespace != "" {
		query.Set("ns", c.config.Namespace)
	}
	if c.config.Partition != "" {
		query.Set("partition", c.config.Partition)
	}
	to := url.URL{Scheme: c.config.Scheme, Host: c.config.Address,
		Path: c.config.PathPrefix + path, RawQuery: query.Encode()}
	if strings.HasPrefix(to.Host, "/") { // the path of a socket
		to.Host = "localhost"
	}
	r, err := http.NewRequestWithContext(ctx, method, to.String(), body)
	if err != nil {
		return nil, err
	}
	if auth := c.config.HttpAuth; auth != nil {
		r.SetBasicAuth(auth.Username, auth.Password)
	}
	response, err := c.config.HttpClient.Do(r)
	return response, brief(err)
}

// brief cuts the URL in an error of the HTTP client: the URL may have a key of any length.
func brief(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		e.URL = fmt.Sprintf("%.150s", e.URL)
	}
	return err
}

// ask sends a request and decodes the JSON of the answer.
func (c *Client) ask(
	ctx context.Context, method, path string, query url.Values, body io.Reader, v any,
) error {
	response, err := c.send(ctx, method, path, query, body)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("%s %.120s: %w", method, path, err)
	}
	if err := json.Unmarshal(answer, v); err != nil {
		return fmt.Errorf("answer %.80q: %w", answer, err)
	}
	return nil
}

// reading returns the options of a read that is consistent and waits as wait says.
func reading(ctx context.Context, wait Wait) *api.QueryOptions {
	q := &api.QueryOptions{RequireConsistent: true, WaitIndex: wait.Index, WaitTime: wait.For}
	return q.WithContext(ctx)
}

// writing returns the options of a write.
func writing(ctx context.Context) *api.WriteOptions {
	return new(api.WriteOptions).WithContext(ctx)
}

// lingering returns a context that lasts a little longer than its parent: the outcome of a request
// that has been sent is worth the wait.
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

// pause waits for d, and returns the cause of ctx if ctx ends first.
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

// oneOfSeveral returns a context for one attempt of those that may be made until the deadline: half
// of the time that is left. If the connection has died no answer comes, and the next attempt, on
// another connection, needs time too.
func oneOfSeveral(ctx context.Context, deadline time.Time) (context.Context, context.CancelFunc) {
	now := time.Now()
	return context.WithDeadline(ctx, now.Add(deadline.Sub(now)/2))
}
