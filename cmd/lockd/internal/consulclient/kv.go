package consulclient

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// Entry is a key as the server shows it.
type Entry struct {
	LockIndex   uint64
	Key         string
	Flags       uint64
	Value       []byte
	Session     string `json:",omitempty"` // who holds the lock; empty if it is free
	CreateIndex uint64
	ModifyIndex uint64
}

// Read is the answer to a read of one key.
type Read struct {
	Entry Entry
	Found bool
	Index uint64 // for the Wait of the next read
}

// Get reads a key. It blocks as the Wait says.
func (c *Client) Get(ctx context.Context, key string, wait Wait) (Read, error) {
	entries, index, err := c.entries(ctx, key, url.Values{"consistent": {""}}, wait)
	if err != nil || len(entries) == 0 {
		return Read{Index: index}, err
	}
	return Read{entries[0], true, index}, nil
}

// List reads all keys that begin with the prefix, which may be empty, and returns the index for
// the Wait of the next read. It blocks as the Wait says.
func (c *Client) List(ctx context.Context, prefix string, wait Wait) ([]Entry, uint64, error) {
	return c.entries(ctx, prefix, url.Values{"recurse": {""}, "consistent": {""}}, wait)
}

func (c *Client) entries(
	ctx context.Context, key string, query url.Values, wait Wait,
) ([]Entry, uint64, error) {
	a, err := c.do(ctx, request{http.MethodGet, keyPath(key), query, nil, wait},
		http.StatusNotFound)
	if err != nil {
		return nil, 0, err
	}
	if a.status == http.StatusNotFound {
		if a.index == 0 { // it is not a key that was not found, but the API
			return nil, 0, &Error{http.MethodGet, "/" + keyPath(key), a.status, string(a.body)}
		}
		return nil, a.index, nil
	}
	var entries []Entry
	return entries, a.index, a.decode(&entries)
}

// PutOptions adds to a Put. The zero value adds nothing.
type PutOptions struct {
	Flags uint64

	// CAS, if it is not nil, has the write done only if the key's ModifyIndex is that; 0 means
	// that there is no such key.
	CAS *uint64
}

// Put sets a key, and reports whether that was done: PutOptions.CAS may be in the way.
func (c *Client) Put(
	ctx context.Context, key string, value []byte, opts PutOptions,
) (bool, error) {
	query := make(url.Values)
	if opts.Flags != 0 {
		query.Set("flags", strconv.FormatUint(opts.Flags, 10))
	}
	if opts.CAS != nil {
		query.Set("cas", strconv.FormatUint(*opts.CAS, 10))
	}
	if value == nil {
		value = []byte{}
	}
	return c.verdict(ctx, request{method: http.MethodPut, path: keyPath(key), query: query,
		body: value})
}

// DeleteOptions adds to a Delete. The zero value adds nothing.
type DeleteOptions struct {
	// CAS, if it is not nil, has the key deleted only if its ModifyIndex is that.
	CAS *uint64
}

// Delete removes a key, and reports whether it is gone: DeleteOptions.CAS may be in the way.
func (c *Client) Delete(ctx context.Context, key string, opts DeleteOptions) (bool, error) {
	query := make(url.Values)
	if opts.CAS != nil {
		query.Set("cas", strconv.FormatUint(*opts.CAS, 10))
	}
	return c.verdict(ctx, request{method: http.MethodDelete, path: keyPath(key), query: query})
}

// DeletePrefix removes all keys that begin with the prefix; all there are, if it is empty.
func (c *Client) DeletePrefix(ctx context.Context, prefix string) error {
	_, err := c.verdict(ctx, request{method: http.MethodDelete, path: keyPath(prefix),
		query: url.Values{"recurse": {""}}})
	return err
}

// verdict sends a request whose answer is true or false.
func (c *Client) verdict(ctx context.Context, r request) (bool, error) {
	a, err := c.do(ctx, r)
	if err != nil {
		return false, err
	}
	var done bool
	return done, a.decode(&done)
}

// keyPath escapes a key, but for its slashes.
func keyPath(key string) string {
	segments := strings.Split(key, "/")
	for i, segment := range segments {
		segments[i] = url.PathEscape(segment)
	}
	return "v1/kv/" + strings.Join(segments, "/")
}
