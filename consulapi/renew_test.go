package consulapi_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/consulapi"
	"github.com/lockd/lockd/lockdtest"
)

// withFaults is a harness on a database whose commits can be held, or fail.
func withFaults(t *testing.T) (*harness, *lockdtest.DB) {
	t.Helper()
	db := lockdtest.New(t, nil)
	h := &harness{t: t, db: db.DB, clock: db.Mock}
	var err error
	h.Handler, err = consulapi.Handler(db.DB, nil)
	h.must(err)
	return h, db
}

// Ensure that a renewal neither waits for the commit of another client nor fails with it, and that
// a renewal in time counts from the time of its call.
func TestSession_S26_RenewalWaitsForNoCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, db := withFaults(t)
		s := h.create(`{"TTL":"10s"}`)
		renew := "PUT /v1/session/renew/" + s.ID
		shown := h.send("GET /v1/session/info/"+s.ID, "").body

		release := db.HoldCommits()
		put := h.blocked("PUT /v1/kv/other")
		db.Advance(10*time.Second - 1)
		if r := h.answered(h.blocked(renew)); r.code != 200 || r.body != shown {
			t.Errorf("while a commit goes on: %d %s", r.code, r.body)
		}
		db.Advance(10*time.Second - 1)
		db.FailNextCommit(errors.New("the disk is full"))
		release()
		if r := h.answered(put); r.code != 500 {
			t.Errorf("put: %d %s", r.code, r.body)
		}
		h.want(renew, "", 200, shown)
		db.Advance(10*time.Second - 1)
		h.want("GET /v1/session/info/"+s.ID, "", 200, shown)
	})
}

// Ensure that a renewal waits for no Update whose function runs, whatever was written before.
func TestSession_S26_RenewalWaitsForNoUpdate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, db := withFaults(t)
		s := h.create(`{"TTL":"10s"}`)
		h.want("PUT /v1/kv/other", "", 200, "true")
		updated, end := make(chan error), make(chan struct{})
		go func() {
			updated <- db.Update(func(*lockd.Txn) error {
				<-end
				return nil
			})
		}()
		synctest.Wait()
		for range 3 {
			db.Add(9 * time.Second) // Advance would wait for the function
			if r := h.answered(h.blocked("PUT /v1/session/renew/" + s.ID)); r.code != 200 {
				t.Errorf("%d %s", r.code, r.body)
			}
		}
		close(end)
		h.must(<-updated)
		h.want("PUT /v1/session/renew/"+s.ID, "", 200,
			h.send("GET /v1/session/info/"+s.ID, "").body)
	})
}

// Ensure that a session is not reported as ended before its end is durable.
func TestSession_G3_RenewalAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, db := withFaults(t)
		s := h.create(`{"TTL":"10s"}`)
		release := db.HoldCommits()
		destroyed := h.blocked("PUT /v1/session/destroy/" + s.ID)
		renewed := h.blocked("PUT /v1/session/renew/" + s.ID)
		h.waits(destroyed)
		h.waits(renewed) // until the end of the session is durable
		release()
		h.answered(destroyed)
		if r := h.answered(renewed); r.code != 404 {
			t.Errorf("%d %s", r.code, r.body)
		}
	})
}
