package consulapi

import (
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
	jitter      = 16 // a wait is longer by up to 1/jitter of it, so that not all end at once

	// crowdedWait is the longest wait, without the jitter, of a query beyond MaxBlocked. An error
	// would be worse: Consul's client takes the lock that it holds for lost when a query of its key
	// fails, so other clients' queries would cost it the lock.
	crowdedWait = time.Second
)

// parseBlocking parses what makes a query block, and its consistency (B1 to B3, B14).
func (r *request) parseBlocking() error {
	if err := r.parseConsistency(); err != nil {
		return err
	}
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
	if r.wait <= 0 {
		r.wait = defaultWait
	}
	r.wait = min(r.wait, maxWait)
	return nil
}

// parseConsistency parses how consistent a read is to be. The answer only repeats it: no read is
// stale (B14).
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

// read answers a read of the scope with what look returns for the state. If the request names an
// index, read waits until the index of the scope is above it, or the wait has passed (B4).
//
// A read that waits fails with 500 if the request's context ends, as it does when the client goes
// away or the server stops, and with DB.Err when the database is closed. A read that does not wait
// does not fail.
func (h *handler) read(
	r *request, scope lockd.Scope, look func(state *lockd.Snapshot) answer,
) (answer, error) {
	state, index, err := h.await(r, scope)
	if err != nil {
		return answer{}, err
	}
	a := look(state)
	a.index = index
	return a.asRead(), nil
}

// await returns the state that a read of the scope is answered from, and the scope's index there.
func (h *handler) await(
	r *request, scope lockd.Scope,
) (state *lockd.Snapshot, index uint64, err error) {
	if r.index == 0 {
		state = h.db.Snapshot()
		return state, state.IndexOf(scope), nil
	}
	wait := r.wait
	defer h.blocked.Add(-1)
	if h.blocked.Add(1) > int64(h.opts.MaxBlocked) {
		wait = min(wait, crowdedWait)
	}
	if spread := wait / jitter; spread > 0 {
		wait += rand.N(spread)
	}
	state, index, err = h.db.Wait(r.Context(), scope, r.index, wait)
	switch {
	case errors.Is(err, lockd.ErrClosed):
		err = h.db.Err()
	case err != nil: // Consul's client rides out a 500, and no other status
		err = refuse(http.StatusInternalServerError, "Query given up: %v", r.Context().Err())
	}
	return state, index, err
}
