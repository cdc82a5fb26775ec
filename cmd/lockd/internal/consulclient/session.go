package consulclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// ErrNoSession is returned when a session does not exist, or has ended.
var ErrNoSession = errors.New("no such session")

// SessionInfo is a session as the server shows it.
type SessionInfo struct {
	ID            string
	Name          string
	Node          string
	LockDelay     time.Duration
	Behavior      string
	TTL           string
	NodeChecks    []string
	ServiceChecks []ServiceCheck
	Checks        []string `json:",omitempty"`
	CreateIndex   uint64
	ModifyIndex   uint64
}

// ServiceCheck names a check of a service.
type ServiceCheck struct {
	ID        string
	Namespace string `json:",omitempty"`
}

// Sessions lists all sessions, and returns the index for the Wait of the next read.
func (c *Client) Sessions(ctx context.Context, wait Wait) ([]SessionInfo, uint64, error) {
	return c.sessions(ctx, "v1/session/list", wait)
}

// Session returns a session, or ErrNoSession.
func (c *Client) Session(ctx context.Context, id string) (SessionInfo, error) {
	sessions, _, err := c.sessions(ctx, "v1/session/info/"+url.PathEscape(id), Wait{})
	switch {
	case err != nil:
		return SessionInfo{}, err
	case len(sessions) == 0:
		return SessionInfo{}, fmt.Errorf("%w: %s", ErrNoSession, id)
	}
	return sessions[0], nil
}

func (c *Client) sessions(
	ctx context.Context, path string, wait Wait,
) ([]SessionInfo, uint64, error) {
	a, err := c.do(ctx, request{method: http.MethodGet, path: path, wait: wait})
	if err != nil {
		return nil, 0, err
	}
	var sessions []SessionInfo
	return sessions, a.index, a.decode(&sessions)
}

// Destroy ends a session, with its lock-delay. It is no error if there is no such session.
func (c *Client) Destroy(ctx context.Context, id string) error {
	_, err := c.verdict(ctx, request{method: http.MethodPut,
		path: "v1/session/destroy/" + url.PathEscape(id)})
	return err
}

// renew renews a session. It returns ErrNoSession if there is none.
func (c *Client) renew(ctx context.Context, id string) error {
	a, err := c.do(ctx, request{method: http.MethodPut,
		path: "v1/session/renew/" + url.PathEscape(id)}, http.StatusNotFound)
	if err == nil && a.status == http.StatusNotFound {
		return fmt.Errorf("%w: %s", ErrNoSession, a.body)
	}
	return err
}

// create makes a session, and returns its ID.
func (c *Client) create(ctx context.Context, opts SessionOptions) (string, error) {
	body := struct{ Name, TTL, LockDelay, Behavior string }{
		opts.Name, text(opts.TTL), text(opts.LockDelay), "release",
	}
	if opts.DeleteKeys {
		body.Behavior = "delete"
	}
	a, err := c.do(ctx, request{method: http.MethodPut, path: "v1/session/create", body: body})
	if err != nil {
		return "", err
	}
	var created struct{ ID string }
	if err := a.decode(&created); err != nil {
		return "", err
	}
	if created.ID == "" {
		return "", fmt.Errorf("the answer %.80q has no session ID", a.body)
	}
	return created.ID, nil
}

// text writes a duration in milliseconds, rounded up: a number below 1000 of any smaller unit would
// be taken for seconds.
func text(d time.Duration) string {
	return fmt.Sprintf("%dms", (d+time.Millisecond-1)/time.Millisecond)
}
