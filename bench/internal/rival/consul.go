package rival

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/hashicorp/consul/api"
)

// Consul is something that speaks Consul's API, called by the official client.
type Consul struct {
	client  *api.Client
	session string
	options *api.WriteOptions // of every request; nil: the client's own
}

// ErrNoConsul says that there is no Consul agent to compare with.
var ErrNoConsul = errors.New("CONSUL_HTTP_ADDR names no agent")

// ConsulSettings says how the client is set.
func ConsulSettings() string {
	return "Consul's official client: " + Version("github.com/hashicorp/consul/api") +
		", KV().Acquire + KV().Release, as many idle connections as workers"
}

// OpenAgent returns the agent that CONSUL_HTTP_ADDR names, with a session for its locks. It
// returns ErrNoConsul if there is none.
func OpenAgent(workers int) (*Consul, error) {
	if os.Getenv("CONSUL_HTTP_ADDR") == "" {
		return nil, ErrNoConsul
	}
	config := api.DefaultConfig()
	config.Transport.MaxIdleConnsPerHost = workers
	client, err := api.NewClient(config)
	if err != nil {
		return nil, err
	}
	return newConsul(client)
}

// AgentSettings says which agent it is.
func (c *Consul) AgentSettings() (string, error) {
	self, err := c.client.Agent().Self()
	if err != nil {
		return "", err
	}
	mode := ""
	if self["DebugConfig"]["DevMode"] == true {
		mode = ", in -dev mode: nothing is on disk"
	}
	return fmt.Sprintf("Consul agent: v%v%s", self["Config"]["Version"], mode), nil
}

// DialConsul returns the client of a server at the address, with a session for its locks.
func DialConsul(address string, workers int) (*Consul, error) {
	client, err := dial(address, workers)
	if err != nil {
		return nil, err
	}
	return newConsul(client)
}

// DialBare returns the client of a server at the address that answers true to everything, and so
// has no session to give.
func DialBare(address string, workers int) (*Consul, error) {
	client, err := dial(address, workers)
	if err != nil {
		return nil, err
	}
	return &Consul{client: client, session: noSession}, nil
}

// noSession is the ID of a session for a server that ignores it.
const noSession = "00000000-0000-0000-0000-000000000001"

// ThroughTransport returns a client that has no socket but the transport, with a session for its
// locks.
func ThroughTransport(transport http.RoundTripper) (*Consul, error) {
	client, err := through(transport)
	if err != nil {
		return nil, err
	}
	return newConsul(client)
}

// ThroughNothing returns a client that is answered true at once, whatever it asks: its calls take
// only the time of the client itself.
func ThroughNothing() (*Consul, error) {
	client, err := through(yes{})
	if err != nil {
		return nil, err
	}
	return &Consul{client: client, session: noSession}, nil
}

// yes answers every request with true.
type yes struct{}

// RoundTrip closes the body of the request unread.
func (yes) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		_ = r.Body.Close() // nothing is lost with it
	}
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}},
		Body:   io.NopCloser(strings.NewReader("true")), ContentLength: 4,
		Request: r,
	}, nil
}

func through(transport http.RoundTripper) (*api.Client, error) {
	return api.NewClient(&api.Config{
		Address: "lockd.invalid", HttpClient: &http.Client{Transport: transport},
	})
}

func dial(address string, workers int) (*api.Client, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = workers, workers
	return api.NewClient(&api.Config{Address: address, Transport: transport})
}

func newConsul(client *api.Client) (*Consul, error) {
	session, _, err := client.Session().Create(&api.SessionEntry{Name: "bench"}, nil)
	if err != nil {
		return nil, err
	}
	return &Consul{client: client, session: session}, nil
}

// WithContext returns the same client, whose requests end with the context.
func (c *Consul) WithContext(ctx context.Context) *Consul {
	return &Consul{c.client, c.session, new(api.WriteOptions).WithContext(ctx)}
}

// Pair acquires and releases the key.
func (c *Consul) Pair(key string) error {
	pair := &api.KVPair{Key: key, Session: c.session}
	acquired, _, err := c.client.KV().Acquire(pair, c.options)
	if err != nil || !acquired {
		return fmt.Errorf("acquire %s: %v, %w", key, acquired, err)
	}
	released, _, err := c.client.KV().Release(pair, c.options)
	if err != nil || !released {
		return fmt.Errorf("release %s: %v, %w", key, released, err)
	}
	return nil
}

// PairOf is Pair for the workers of a crowd.
func (c *Consul) PairOf(_ int, key string) error { return c.Pair(key) }

// Close ends the session. The agent keeps the keys.
func (c *Consul) Close() error {
	_, err := c.client.Session().Destroy(c.session, nil)
	return err
}
