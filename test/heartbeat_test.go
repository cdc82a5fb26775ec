package lockd_test

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/catalog"
	"github.com/lockd/lockd/store"
)

// putCheck registers a check of the node "db1".
func (h *harness) putCheck(check catalog.Check) {
	h.t.Helper()
	check.Node = "db1"
	h.must(h.Update(func(tx *lockd.Txn) error { return tx.Catalog().PutCheck(check) }))
}

// check returns a check of the node "db1", which must be there.
func (h *harness) check(id string) catalog.Check {
	h.t.Helper()
	check, ok := h.Snapshot().Catalog().Check("db1", id)
	if !ok {
		h.t.Fatalf("there is no check %q", id)
	}
	return check
}

var ttlCheck = catalog.Check{
	Name: "beat", Status: catalog.Passing, Output: "fine", TTL: 10 * time.Second,
	Meta: map[string]string{"kind": "ttl"},
}

// Ensure that a check becomes critical exactly when its TTL is over, which ends the sessions that
// are bound to it in the same step.
func TestCatalog_N8_TTLLapses(t *testing.T) {
	each(t, func(h *harness) {
		h.register()
		h.putCheck(ttlCheck)
		s := h.session(&lockd.SessionOptions{Node: "db1", Checks: []string{"beat"}})
		h.lock(s, "k")

		h.advance(10*time.Second - 1)
		if got := h.check("beat"); got.Status != catalog.Passing || got.Output != "fine" {
			h.t.Fatalf("before its time: %+v", got)
		}
		h.advance(1)
		got := h.check("beat")
		if got.Status != catalog.Critical || got.Output != "TTL expired" ||
			got.TTL != 10*time.Second || !maps.Equal(got.Meta, ttlCheck.Meta) {
			h.t.Errorf("after its time: %+v", got)
		}
		if !errors.Is(s.Err(), catalog.ErrCheckCritical) {
			h.t.Errorf("the session: %v", s.Err())
		}
		if e := h.entry("k"); e.ModifyIndex != got.ModifyIndex {
			h.t.Errorf("the key went at %d, the check at %d", e.ModifyIndex, got.ModifyIndex)
		}
	})
}

// Ensure that a check that is put again begins its TTL anew, and moves no index if it is unchanged.
func TestCatalog_N8_PutBeginsTheTTLAnew(t *testing.T) {
	each(t, func(h *harness) {
		h.register()
		h.putCheck(ttlCheck)
		index := h.Snapshot().Index()
		for range 3 {
			h.advance(9 * time.Second)
			h.putCheck(ttlCheck)
		}
		if got := h.Snapshot().Index(); got != index {
			h.t.Errorf("went from index %d to %d", index, got)
		}
		h.advance(10*time.Second - 1)
		if got := h.check("beat"); got.Status != catalog.Passing {
			h.t.Errorf("before its time: %+v", got)
		}
		h.advance(1)
		if got := h.check("beat"); got.Status != catalog.Critical {
			h.t.Errorf("after its time: %+v", got)
		}

		h.putCheck(ttlCheck)
		h.advance(10 * time.Second)
		if got := h.check("beat"); got.Status != catalog.Critical {
			h.t.Errorf("the second time: %+v", got)
		}
	})
}

// Ensure that a new TTL counts also if it is shorter than the one before.
func TestCatalog_N8_ShorterTTL(t *testing.T) {
	each(t, func(h *harness) {
		h.register()
		h.putCheck(ttlCheck)
		short := ttlCheck
		short.TTL = time.Second
		h.putCheck(short)
		h.advance(time.Second)
		if got := h.check("beat"); got.Status != catalog.Critical {
			h.t.Errorf("%+v", got)
		}
	})
}

// Ensure that a TTL has no effect when its check is gone, is critical, or has no TTL any more.
func TestCatalog_N8_NoTTLAnyMore(t *testing.T) {
	each(t, func(h *harness) {
		h.register()
		gone, critical, without := ttlCheck, ttlCheck, ttlCheck
		gone.Name, critical.Name, without.Name = "gone", "critical", "without"
		h.putCheck(gone)
		h.putCheck(critical)
		h.putCheck(without)
		h.must(h.Update(func(tx *lockd.Txn) error {
			_, err := tx.Catalog().DeleteCheck("db1", "gone")
			return err
		}))
		critical.Status, without.TTL = catalog.Critical, 0
		h.putCheck(critical)
		h.putCheck(without)
		index := h.Snapshot().Index()
		h.advance(time.Minute)
		if got := h.Snapshot().Index(); got != index {
			h.t.Errorf("went from index %d to %d", index, got)
		}
		if h.check("critical").Output != "fine" || h.check("without").Status != catalog.Passing {
			h.t.Errorf("%+v, %+v", h.check("critical"), h.check("without"))
		}
	})
}

// Ensure that a check that loses its deadline, in whatever way, leaves nothing of it, and that the
// deadline is there as before if that is undone.
func TestCatalog_N8_NoDeadlineIsLeft(t *testing.T) {
	refused := errors.New("refused")
	critical, without := ttlCheck, ttlCheck
	critical.Node, critical.Status = "db1", catalog.Critical
	without.Node, without.TTL = "db1", 0
	for name, end := range map[string]func(tx *lockd.Txn) error{
		"critical":    func(tx *lockd.Txn) error { return tx.Catalog().PutCheck(critical) },
		"without TTL": func(tx *lockd.Txn) error { return tx.Catalog().PutCheck(without) },
		"deleted": func(tx *lockd.Txn) error {
			return second(tx.Catalog().DeleteCheck("db1", "beat"))
		},
		"node": func(tx *lockd.Txn) error { return second(tx.Catalog().DeleteNode("db1")) },
		"and again": func(tx *lockd.Txn) error {
			again := ttlCheck
			again.Node, again.TTL = "db1", time.Hour
			return errors.Join(second(tx.Catalog().DeleteCheck("db1", "beat")),
				tx.Catalog().PutCheck(again),
				second(tx.Catalog().DeleteCheck("db1", "beat")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(h *harness) {
				h.register()
				h.putCheck(ttlCheck)
				err := h.Update(func(tx *lockd.Txn) error { return errors.Join(end(tx), refused) })
				if !errors.Is(err, refused) || h.Deadlines() != 1 {
					h.t.Fatalf("undone: %v, %d deadlines", err, h.Deadlines())
				}
				h.advance(10*time.Second - 1)
				if got := h.check("beat"); got.Status != catalog.Passing {
					h.t.Fatalf("before its time: %+v", got)
				}
				h.must(h.Update(end))
				if h.Deadlines() != 0 {
					h.t.Errorf("%d deadlines are left", h.Deadlines())
				}
				h.register()
				h.putCheck(ttlCheck)
				h.advance(10 * time.Second)
				if got := h.check("beat"); got.Status != catalog.Critical || h.Deadlines() != 0 {
					h.t.Errorf("after its time: %+v, %d deadlines", got, h.Deadlines())
				}
			})
		})
	}
}

// Ensure that a transaction that is undone does not begin a TTL anew (G11).
func TestCatalog_N8_UndoneBeginsNothing(t *testing.T) {
	each(t, func(h *harness) {
		h.register()
		h.putCheck(ttlCheck)
		h.advance(9 * time.Second)
		refused := errors.New("refused")
		longer := ttlCheck
		longer.Node, longer.TTL = "db1", time.Hour
		fresh := longer
		fresh.Name = "fresh"
		err := h.Update(func(tx *lockd.Txn) error {
			return errors.Join(tx.Catalog().PutCheck(longer), tx.Catalog().PutCheck(fresh), refused)
		})
		if !errors.Is(err, refused) {
			h.t.Fatal(err)
		}
		h.advance(time.Second)
		if got := h.check("beat"); got.Status != catalog.Critical {
			h.t.Errorf("%+v", got)
		}
	})
}

// Ensure that an Open begins the TTLs of checks that were not critical anew.
func TestCatalog_S28_OpenBeginsTTLsAnew(t *testing.T) {
	onFile(t, func(h *harness) {
		h.register()
		h.putCheck(ttlCheck)
		h.advance(9 * time.Second)
		h.reopen()
		h.advance(10*time.Second - 1)
		if got := h.check("beat"); got.Status != catalog.Passing {
			h.t.Errorf("before its time: %+v", got)
		}
		h.advance(1)
		if got := h.check("beat"); got.Status != catalog.Critical {
			h.t.Errorf("after its time: %+v", got)
		}
		h.reopen()
		if got := h.check("beat"); got.Status != catalog.Critical || got.TTL != 10*time.Second {
			h.t.Errorf("after a restart: %+v", got)
		}
	})
}

// Ensure that a lapse whose commit failed is tried again.
func TestCatalog_N8_FailedLapseIsTriedAgain(t *testing.T) {
	onFile(t, func(h *harness) {
		fail := false
		h.hook(store.Hooks{BeforeCommit: func() error {
			if fail {
				return errors.New("no space")
			}
			return nil
		}})
		h.register()
		h.putCheck(ttlCheck)
		fail = true
		h.advance(10 * time.Second)
		if got := h.check("beat"); got.Status != catalog.Passing {
			h.t.Fatalf("shown before it is durable: %+v", got)
		}
		fail = false
		h.advance(time.Minute)
		if got := h.check("beat"); got.Status != catalog.Critical {
			h.t.Errorf("not tried again: %+v", got)
		}
	})
}

// Ensure that a TTL below zero is refused, and so is a TTL that most likely lacks its unit.
func TestCatalog_TTLTooShort(t *testing.T) {
	each(t, func(h *harness) {
		h.register()
		for ttl, text := range map[time.Duration]string{
			-1: "Check.TTL is -1ns, below 0",
			10: "Check.TTL is 10ns, below 1ms; was a unit forgotten, as in 10 * time.Second?",
		} {
			err := h.Update(func(tx *lockd.Txn) error {
				return tx.Catalog().PutCheck(catalog.Check{Node: "db1", Name: "beat", TTL: ttl})
			})
			if !errors.Is(err, lockd.ErrInvalid) || !strings.Contains(err.Error(), text) {
				h.t.Errorf("got %v, want %q", err, text)
			}
		}
	})
}
