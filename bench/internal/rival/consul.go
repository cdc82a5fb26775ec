package rival

import (
	"errors"
	"fmt"
	"net/http"
	"os"

	"github.com/hashicorp/consul/api"
)

// Consul is something that speaks Consul's API, called by the official client.
type Consul struct {
	client  *api.Client
	session string
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
	return &Consul{client, "00000000-0000-0000-0000-000000000001"}, nil
}

// ThroughTransport returns a client that has no socket but the transport, with a session for its
// locks.
func ThroughTransport(transport http.RoundTripper) (*Consul, error) {
	client, err := api.NewClient(&api.Config{
		Address: "lockd.invalid", HttpClient: &http.Client{Transport: transport},
	})
	if err != nil {
		return nil, err
	}
	return newConsul(client)
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
	return &Consul{client, session}, nil
}

// Pair acquires and releases the key.
func (c *Consul) Pair(key string) error {
	pair := &api.KVPair{Key: key, Session: c.session}
	acquired, _, err := c.client.KV().Acquire(pair, nil)
	if err != nil || !acquired {
		return fmt.Errorf("acquire %s: %v, %w", key, acquired, err)
	}
	released, _, err := c.client.KV().Release(pair, nil)
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
