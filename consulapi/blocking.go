package consulapi

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/lockd/lockd"
)

const (
	defaultWait = 5 * time.Minute
	maxWait     = 10 * time.Minute
	jitter      = 16 // a wait is longer by up to this part of it, so that not all end at once
)

// parseBlocking parses what makes a query block, and how consistent it is to be (B1 to B3, B14).
func (r *request) parseBlocking() error {
	if text := r.query.Get("wait"); text != "" {
		wait, err := time.ParseDuration(text)
		if err != nil {
			return refuse(http.StatusBadRequest, "Invalid wait time")
		}
		r.wait = wait
	}
	if text := r.query.Get("index"); text != "" {
		index, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return refuse(http.StatusBadRequest, "Invalid index")
		}
		r.index = index
	}
	if err := r.parseConsistency(); err != nil {
		return err
	}
	if r.wait <= 0 {
		r.wait = defaultWait
	}
	r.wait = min(r.wait, maxWait)
	return nil
}

// parseConsistency parses how consistent a read is to be, which is only told: nothing here is stale
// (B14).
func (r *request) parseConsistency() error {
	stale, consistent := r.has("stale"), r.has("consistent")
	if text := r.query.Get("max_stale"); text != "" {
		most, err := time.ParseDuration(text)
		if err != nil {
			return refuse(http.StatusBadRequest, "Invalid max_stale value %q", text)
		}
		stale = stale || most > 0
	}
	const conflict = "Cannot specify ?%s with ?consistent, conflicting semantics."
	switch {
	case stale && consistent:
		return refuse(http.StatusBadRequest, conflict, "stale")
	case r.has("cached") && consistent:
		return refuse(http.StatusBadRequest, conflict, "cached")
	case stale:
		r.consistency = "stale"
	case consistent:
		r.consistency = "consistent"
	default:
		r.consistency = "leader"
	}
	return nil
}

// read answers a read of the scope. It looks once; if the request names an index that what it
// sees is not beyond, it waits until that changes or the time is up, and looks again (B4). look
// gives the index of the scope with what it saw.
//
// It answers with 503 if the client goes away, who will not see it, or whoever else ends the
// context, and with 429 if too many wait already. It returns ErrClosed when the database is closed.
func (h *handler) read(
	r *request, scope lockd.Scope, look func() (answer, error),
) (answer, error) {
	seen, err := look()
	if err != nil || r.index == 0 || seen.index > r.index {
		return seen.asRead(), err
	}
	if h.blocked.Add(1) > int64(h.opts.MaxBlocked) {
		h.blocked.Add(-1)
		return answer{}, refuse(http.StatusTooManyRequests,
			"Too many blocked queries, the limit is %d", h.opts.MaxBlocked)
	}
	defer h.blocked.Add(-1)

	timeout := make(chan struct{})
	wait := r.wait
	if spread := wait / jitter; spread > 0 {
		wait += rand.N(spread)
	}
	stop := h.db.Schedule(wait, func() { close(timeout) })
	defer stop()
	ctx, cancel := context.WithCancel(r.Context()) // gives back what Changed took
	defer cancel()
	wasAbsent, index := seen.absent, r.index
	for {
		select {
		case <-h.db.Changed(ctx, scope, index):
		case <-timeout:
			seen, err = look()
			return seen.asRead(), err
		case <-ctx.Done():
			return answer{}, refuse(http.StatusServiceUnavailable, "Query given up: %v", ctx.Err())
		}
		if err := h.db.Err(); errors.Is(err, lockd.ErrClosed) {
			return answer{}, err
		}
		seen, err = look()
		stillAbsent := seen.absent && wasAbsent && seen.index > index
		if err != nil || !stillAbsent {
			// It has changed; or the index is one that the database has not reached (X15).
			return seen.asRead(), err
		}
		index = seen.index // B8
	}
}

// asRead adds what all reads tell.
func (a answer) asRead() answer {
	a.read, a.index = true, max(a.index, 1) // I10
	return a
}
