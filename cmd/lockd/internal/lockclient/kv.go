package lockclient

import (
	"bytes"
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/hashicorp/consul/api"
)

// Wait makes a read wait until the index of what it reads is above Index, for about For at most.
// The zero value does not wait.
type Wait struct {
	Index uint64
	For   time.Duration
}

// Get reads a key, nil if it does not exist, and returns the index for the Wait of the next read.
// It blocks as the Wait says.
func (c *Client) Get(ctx context.Context, key string, wait Wait) (*api.KVPair, uint64, error) {
	// The official client takes a slash off the key that it is given.
	pair, meta, err := c.KV().Get("/"+key, reading(ctx, wait))
	if err != nil {
		return nil, 0, brief(err)
	}
	return pair, meta.LastIndex, nil
}

// List reads all keys that begin with the prefix, which may be empty, and returns the index for
// the Wait of the next read. It blocks as the Wait says.
func (c *Client) List(
	ctx context.Context, prefix string, wait Wait,
) (api.KVPairs, uint64, error) {
	pairs, meta, err := c.KV().List("/"+prefix, reading(ctx, wait))
	if err != nil {
		return nil, 0, brief(err)
	}
	return pairs, meta.LastIndex, nil
}

// Put sets the value and flags of a key, and reports whether it did. If cas is not nil, the key's
// ModifyIndex has to equal it, where 0 means that the key does not exist.
//
// The official client refuses a key that begins with a slash, and takes any answer for success.
func (c *Client) Put(ctx context.Context, pair *api.KVPair, cas *uint64) (bool, error) {
	query := casQuery(cas)
	if pair.Flags != 0 {
		query.Set("flags", strconv.FormatUint(pair.Flags, 10))
	}
	var done bool
	err := c.ask(ctx, http.MethodPut, "/v1/kv/"+pair.Key, query, bytes.NewReader(pair.Value), &done)
	return done, err
}

// Delete removes a key, and reports whether the key is gone. If cas is not nil, the key's
// ModifyIndex has to equal it.
func (c *Client) Delete(ctx context.Context, key string, cas *uint64) (bool, error) {
	return c.delete(ctx, key, casQuery(cas))
}

// DeletePrefix removes all keys that begin with the prefix, or all keys if it is empty.
func (c *Client) DeletePrefix(ctx context.Context, prefix string) error {
	_, err := c.delete(ctx, prefix, url.Values{"recurse": {""}})
	return err
}

func (c *Client) delete(ctx context.Context, key string, query url.Values) (bool, error) {
	var done bool
	err := c.ask(ctx, http.MethodDelete, "/v1/kv/"+key, query, nil, &done)
	return done, err
}

func casQuery(cas *uint64) url.Values {
	if cas == nil {
		return url.Values{}
	}
	return url.Values{"cas": {strconv.FormatUint(*cas, 10)}}
}
