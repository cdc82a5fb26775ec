package lockclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/consul/api"
)

// ErrNoSession is returned when a session does not exist, or has ended.
var ErrNoSession = errors.New("no such session")

// SessionOptions says which session Keep makes. TTL has to be positive.
type SessionOptions struct {
	Name      string
	TTL       time.Duration
	LockDelay time.Duration // zero means none
	// DeleteKeys deletes the keys whose locks the session holds when it ends; else their locks are
	// released.
	DeleteKeys bool
	// Retrying, unless it is nil, is called by Lock, Share and Acquire when an attempt fails with
	// an error that does not end the wait. It is called again only after the server has answered.
	Retrying func(err error)
}

// Keeper keeps a session alive, until it is closed. Its methods may be called by many goroutines.
// The zero value is not usable; Client.Keep gives one.
type Keeper struct {
	client   *Client
	id       string
	ttl      time.Duration
	retrying func(err error)

	life    context.Context // ends with Close
	end     context.CancelFunc
	running sync.WaitGroup // the goroutines that renew, or watch a lock or a slot

	lost    context.Context // ends when the work under the session has to, with the cause
	endLost context.CancelCauseFunc

	mu sync.Mutex // guards what follows

	last     time.Time     // when the last renewal that succeeded was sent
	delay    time.Duration // for which no session gets this one's locks, after its end
	deadline time.Time
}

// Keep makes a session and at once begins to keep it alive. It blocks until the session exists, for
// at most a second longer than ctx, so that no session is left behind without a keeper. It returns
// the error of the request if no session was made.
func (c *Client) Keep(ctx context.Context, opts SessionOptions) (*Keeper, error) {
	sent := time.Now()
	longer, cancel := lingering(ctx)
	defer cancel()
	id, err := c.create(longer, opts)
	if err != nil {
		return nil, err
	}
	k := &Keeper{client: c, id: id, ttl: opts.TTL, last: sent, delay: opts.LockDelay,
		retrying: opts.Retrying}
	k.lost, k.endLost = context.WithCancelCause(context.Background())
	k.life, k.end = context.WithCancel(context.Background())
	k.running.Go(k.renew)
	return k, nil
}

// ID returns the ID of the session.
func (k *Keeper) ID() string { return k.id }

// Done returns a channel that is closed when the work under the session has to end: because the
// session or the lock is lost, or because the session is not known to last.
func (k *Keeper) Done() <-chan struct{} { return k.lost.Done() }

// Err returns nil until Done is closed, and then the cause.
func (k *Keeper) Err() error { return context.Cause(k.lost) }

// Deadline is when, after Done was closed, all work has to be over: from then on another session
// may have the lock. Before, it is the zero time.
func (k *Keeper) Deadline() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.deadline
}

// Close ends the session, and with it all locks that it still holds. It blocks until that is done
// or has failed, for at most a second longer than ctx, and waits for the goroutines of the keeper.
func (k *Keeper) Close(ctx context.Context) error {
	k.end()
	k.running.Wait()
	if errors.Is(k.Err(), ErrNoSession) {
		return nil
	}
	longer, cancel := lingering(ctx)
	defer cancel()
	return k.client.EndSession(longer, k.id)
}

// EndSession ends a session. It is no error if the session does not exist. The official client's
// Destroy takes any answer for success.
func (c *Client) EndSession(ctx context.Context, id string) error {
	var ended bool
	return c.ask(ctx, http.MethodPut, "/v1/session/destroy/"+id, url.Values{}, nil, &ended)
}

// create makes a session, and returns its ID. The official client's Create leaves out a lock-delay
// of zero, which means none, so that the server would take its default.
func (c *Client) create(ctx context.Context, opts SessionOptions) (string, error) {
	entry := struct{ Name, TTL, LockDelay, Behavior string }{
		opts.Name, text(opts.TTL), text(opts.LockDelay), api.SessionBehaviorRelease,
	}
	if opts.DeleteKeys {
		entry.Behavior = api.SessionBehaviorDelete
	}
	var created struct{ ID string }
	_, err := c.Raw().Write("/v1/session/create", entry, &created, writing(ctx))
	if err == nil && created.ID == "" {
		err = errors.New("the answer has no session ID")
	}
	return created.ID, err
}

// text writes a duration in milliseconds, rounded up: Consul takes a LockDelay of less than a
// microsecond for that many seconds.
func text(d time.Duration) string {
	return fmt.Sprintf("%dms", (d+time.Millisecond-1)/time.Millisecond)
}

// renewOnce renews the session. It returns ErrNoSession if the server says that it does not exist.
// Another 404 is of something in front of the server.
func (k *Keeper) renewOnce(ctx context.Context) error {
	entry, _, err := k.client.Session().Renew(k.id, writing(ctx))
	e, refused := errors.AsType[*Error](err)
	if err == nil && entry == nil || refused && e.Status == http.StatusNotFound &&
		strings.HasPrefix(e.Text, "Session id ") {
		return ErrNoSession
	}
	return err
}

// lose closes Done: the work under the session has to end by the deadline.
func (k *Keeper) lose(err error, deadline time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lost.Err() == nil {
		k.deadline = deadline
		k.endLost(err)
	}
}

// renew renews the session until the keeper is closed or the session is lost.
func (k *Keeper) renew() {
	last := k.last // from now on only this function sets it
	var failure error
	for {
		giveUp := last.Add(k.ttl * 2 / 3)
		next := last.Add(k.ttl / 3)
		if failure != nil {
			next = time.Now().Add(k.ttl / 30)
		}
		if next.After(giveUp) {
			next = giveUp
		}
		if pause(k.life, time.Until(next)) != nil {
			return
		}
		if failure != nil && !time.Now().Before(giveUp) {
			k.lose(fmt.Errorf("session %s has a TTL of %v and could not be renewed for %v: %w",
				k.id, k.ttl, time.Since(last).Round(time.Millisecond), failure),
				last.Add(k.ttl*5/6))
			return
		}
		sent := time.Now()
		if !sent.Before(giveUp) { // the process was stopped, as by Ctrl-Z, and has not asked yet
			giveUp = sent.Add(k.ttl / 15)
		}
		attempt, cancel := oneOfSeveral(k.life, giveUp)
		failure = k.renewOnce(attempt)
		cancel()
		switch {
		case failure == nil:
			last = sent
			k.mu.Lock()
			k.last = sent
			k.mu.Unlock()
		case errors.Is(failure, ErrNoSession):
			k.lose(k.ended(), k.afterEnd())
			return
		}
	}
}

// afterEnd returns the deadline for all work, if the session has just been found to have ended. It
// ended after the last renewal, and its lock-delay began then.
func (k *Keeper) afterEnd() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	deadline := now.Add(k.ttl / 6)
	if free := k.last.Add(k.delay); free.Before(deadline) {
		deadline = free
	}
	if deadline.Before(now) {
		deadline = now
	}
	return deadline
}

// afterLoss returns the deadline for all work, and the cause, if the lock or the slot is lost. The
// deadline is now, except that after the end of the session its lock-delay leaves time.
func (k *Keeper) afterLoss(loss error) (time.Time, error) {
	now := time.Now()
	deadline := k.afterEnd()
	if errors.Is(loss, errTaken) || !deadline.After(now) { // to ask would take time
		return now, fmt.Errorf("%w; it may be that session %s has ended", loss, k.id)
	}
	ctx, cancel := context.WithDeadline(k.life, deadline)
	defer cancel()
	if errors.Is(k.renewOnce(ctx), ErrNoSession) {
		return deadline, fmt.Errorf("%w; by that %w", k.ended(), loss)
	}
	return now, loss
}

// ended returns the error for a session that the server no longer has.
func (k *Keeper) ended() error {
	return fmt.Errorf("%w: %s was destroyed, or its TTL of %v has passed", ErrNoSession, k.id,
		k.ttl)
}

// look reads whether a lock or a slot is still held. It returns the index for the next read, and
// how it was lost, if it was.
type look func(ctx context.Context, wait Wait) (index uint64, loss, err error)

// errTaken is part of a loss if another session holds the lock by now.
var errTaken = errors.New("another session holds the lock")

// watch waits for a loss, and then closes Done, unless it is stopped or the keeper is closed
// before. stop waits until the watch has ended.
func (k *Keeper) watch(look look) (stop func()) {
	ctx, cancel := context.WithCancel(k.life)
	stopped := make(chan struct{})
	k.running.Go(func() {
		defer close(stopped)
		wait := Wait{}
		for {
			index, loss, err := look(ctx, wait)
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				// The renewals find out whether the session lasts.
				_ = pause(ctx, retry)
				wait = Wait{}
			case loss != nil:
				deadline, err := k.afterLoss(loss)
				k.lose(err, deadline)
				return
			default:
				wait = Wait{Index: index, For: longPoll}
			}
		}
	})
	return func() {
		cancel()
		<-stopped
	}
}

// bound returns a context that also ends when the session is lost.
func (k *Keeper) bound(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	stop := context.AfterFunc(k.lost, func() { cancel(k.Err()) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}
