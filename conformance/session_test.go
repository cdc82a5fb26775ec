package conformance_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/lockd/lockd/consulapi"
)

func TestS1S4_WhatASessionIsByDefault(t *testing.T) {
	each(t, func(h *harness) {
		id := h.session(nil)
		s, meta, err := h.Session().Info(id, nil)
		check(h.t, err)
		if s == nil || s.ID != id || s.Node != h.db.Node() || s.Behavior != "release" ||
			s.LockDelay != 15*time.Second || s.TTL != "" || len(s.NodeChecks) != 1 ||
			s.NodeChecks[0] != "serfHealth" || s.ServiceChecks != nil {
			h.t.Fatalf("%+v", s)
		}
		if !meta.KnownLeader || meta.LastIndex != s.CreateIndex {
			h.t.Fatalf("%+v of %+v", meta, s)
		}
	})
}

func TestS20_ASessionIsAsItWasAskedFor(t *testing.T) {
	each(t, func(h *harness) {
		s := h.info(h.session(&api.SessionEntry{
			Name: "ü", TTL: "20s", LockDelay: 90 * time.Second,
			Behavior: api.SessionBehaviorDelete,
		}))
		if s.Name != "ü" || s.TTL != "20s" || s.Behavior != "delete" {
			h.t.Fatalf("%+v", s)
		}
		equal(h, "S22: lock-delay, as sent", s.LockDelay, 90*time.Second)
	})
}

func TestS8_ASessionWithoutChecks(t *testing.T) {
	each(t, func(h *harness) {
		id, _, err := h.Session().CreateNoChecks(&api.SessionEntry{Name: "n"}, nil)
		check(h.t, err)
		if s := h.info(id); len(s.NodeChecks) != 0 {
			h.t.Fatalf("%+v", s)
		}
	})
}

func TestS11S13S16S17_SessionsThatAreRefused(t *testing.T) {
	each(t, func(h *harness) {
		for _, test := range []struct {
			entry api.SessionEntry
			text  string
		}{
			{api.SessionEntry{Behavior: "keep"}, "500 (Invalid Behavior setting 'keep')"},
			{api.SessionEntry{TTL: "15"}, "500 (Session TTL '15' invalid: "},
			{api.SessionEntry{TTL: "25h"}, "500 (Invalid Session TTL '90000000000000'"},
			{api.SessionEntry{TTL: "1us"}, "500 (Invalid Session TTL '1000'"},
			{api.SessionEntry{Node: "dne"}, "500 (apply failed: Missing node registration)"},
			{api.SessionEntry{NodeChecks: []string{"dne"}},
				"500 (apply failed: Missing check 'dne' registration)"},
		} {
			_, _, err := h.Session().Create(&test.entry, nil)
			h.refused(err, test.text)
		}
		all, _, err := h.Session().List(nil)
		check(h.t, err)
		equal(h, "sessions", len(all), 0)
	})
}

func TestS21S22_ALockDelayOverAMinuteIsCapped(t *testing.T) {
	each(t, func(h *harness) {
		one := h.session(&api.SessionEntry{LockDelay: 90 * time.Second})
		two := h.session(nil)
		equal(h, "acquire", h.acquire("a", one, ""), true)
		h.destroy(one)
		h.advance(time.Minute - time.Nanosecond)
		equal(h, "before a minute", h.acquire("a", two, ""), false)
		h.advance(time.Nanosecond)
		equal(h, "after a minute", h.acquire("a", two, ""), true)
	})
}

func TestS22_TheClientMakesAMillisecondOfLess(t *testing.T) {
	each(t, func(h *harness) {
		s := h.info(h.session(&api.SessionEntry{LockDelay: time.Microsecond}))
		equal(h, "lock-delay", s.LockDelay, time.Millisecond)
	})
}

func TestS24S25_Renew(t *testing.T) {
	each(t, func(h *harness) {
		for _, ttl := range []string{"", "20s"} {
			id := h.session(&api.SessionEntry{TTL: ttl})
			s, _, err := h.Session().Renew(id, nil)
			check(h.t, err)
			equal(h, "S3: index", s.CreateIndex, h.info(id).CreateIndex)
			equal(h, "TTL", s.ID+s.TTL, id+ttl)
			h.destroy(id)
			s, _, err = h.Session().Renew(id, nil)
			check(h.t, err)
			if s != nil {
				h.t.Fatalf("renewed, and is destroyed: %+v", s)
			}
		}
	})
}

func TestS26S27_ATTLEndsASessionUnlessItIsRenewed(t *testing.T) {
	each(t, func(h *harness) {
		id := h.session(&api.SessionEntry{TTL: "10s", LockDelay: 2 * time.Second})
		equal(h, "acquire", h.acquire("a", id, ""), true)
		h.advance(9 * time.Second)
		_, _, err := h.Session().Renew(id, nil)
		check(h.t, err)
		h.advance(10*time.Second - time.Nanosecond)
		equal(h, "S27: use is no renewal", h.acquire("a", id, "2"), true)
		h.advance(time.Nanosecond)
		if s := h.info(id); s != nil {
			h.t.Fatalf("lives on: %+v", s)
		}
		equal(h, "holder", h.get("a").Session, "")
		other := h.session(nil)
		equal(h, "S32: delayed", h.acquire("a", other, ""), false)
		h.advance(2 * time.Second)
		equal(h, "then free", h.acquire("a", other, ""), true)
	})
}

func TestS26_GraceAddsTTLs(t *testing.T) {
	eachWith(t, consulapi.Options{GraceTTLs: 1}, func(h *harness) {
		id := h.session(&api.SessionEntry{TTL: "10s"})
		equal(h, "TTL", h.info(id).TTL, "10s")
		h.advance(20*time.Second - time.Nanosecond)
		if h.info(id) == nil {
			h.t.Fatal("the session has ended")
		}
		h.advance(time.Nanosecond)
		if h.info(id) != nil {
			h.t.Fatal("the session lives on")
		}
	})
}

func TestS13_NoTTLIsBelowTenSeconds(t *testing.T) {
	eachWith(t, consulapi.Options{}, func(h *harness) {
		h.session(&api.SessionEntry{TTL: "10s"})
		_, _, err := h.Session().Create(&api.SessionEntry{TTL: "9s"}, nil)
		h.refused(err, "500 (Invalid Session TTL '9000000000', must be between [10s=24h0m0s])")
	})
}

func TestS6S7C8_OtherClientsBodies(t *testing.T) {
	each(t, func(h *harness) {
		var created struct{ ID string }
		_, err := h.Raw().Write("/v1/session/create", map[string]any{
			"name": "other", "ttl": "20s", "lockdelay": 1, "behavior": "delete",
			"checks": []string{}, "extra": true,
		}, &created, nil)
		check(h.t, err)
		s := h.info(created.ID)
		if s.Name != "other" || s.TTL != "20s" || s.LockDelay != time.Second ||
			s.Behavior != "delete" || len(s.NodeChecks) != 0 {
			h.t.Fatalf("%+v", s)
		}
	})
}

func TestS31K34_TheEndOfASessionIsOneStep(t *testing.T) {
	each(t, func(h *harness) {
		released := h.session(nil)
		deleted := h.session(&api.SessionEntry{Behavior: api.SessionBehaviorDelete})
		for _, key := range []string{"a", "b"} {
			equal(h, "acquire", h.acquire("release/"+key, released, "1"), true)
			equal(h, "acquire", h.acquire("delete/"+key, deleted, "1"), true)
		}
		h.destroy(released)
		a, b := h.get("release/a"), h.get("release/b")
		if a.Session != "" || b.Session != "" || a.ModifyIndex != b.ModifyIndex {
			h.t.Fatalf("%s, %s", brief(a), brief(b))
		}
		h.destroy(deleted)
		equal(h, "index", h.missing("delete/a"), h.missing("delete/b"))
		equal(h, "S32: a deleted key is delayed, too",
			h.acquire("delete/a", h.session(nil), ""), false)
	})
}

func TestS35S36_DestroyIsTrueForAll(t *testing.T) {
	each(t, func(h *harness) {
		id := h.session(nil)
		h.destroy(id)
		h.destroy(id)
		h.destroy("garbage")
		if s := h.info(id); s != nil {
			h.t.Fatalf("%+v", s)
		}
	})
}

func TestS2S37_ReadsOfSessions(t *testing.T) {
	each(t, func(h *harness) {
		one, two := h.session(nil), h.session(nil)
		all, meta, err := h.Session().List(nil)
		check(h.t, err)
		here, _, err := h.Session().Node(strings.ToUpper(h.db.Node()), nil) // S39
		check(h.t, err)
		for _, list := range [][]*api.SessionEntry{all, here} {
			if len(list) != 2 || list[0].ID != min(one, two) || list[1].ID != max(one, two) {
				h.t.Fatalf("%v", list)
			}
		}
		equal(h, "S38: index", meta.LastIndex, max(all[0].CreateIndex, all[1].CreateIndex))
		nowhere, _, err := h.Session().Node("nowhere", nil)
		check(h.t, err)
		equal(h, "sessions nowhere", len(nowhere), 0)
	})
}

func TestS40_ReadsOfSessionsBlock(t *testing.T) {
	each(t, func(h *harness) {
		one := h.session(nil)
		_, meta, err := h.Session().Info(one, nil)
		check(h.t, err)
		wait := &api.QueryOptions{WaitIndex: meta.LastIndex}
		list := call(func() int {
			all, _, err := h.Session().List(wait)
			return len(all) + failed(h, err)
		})
		two := h.session(nil)
		equal(h, "sessions", receive(h, list), 2)
		ended := call(func() bool {
			s, meta, err := h.Session().Info(one, wait)
			for failed(h, err); s != nil; failed(h, err) { // a start of another session may wake it
				s, meta, err = h.Session().Info(one, &api.QueryOptions{WaitIndex: meta.LastIndex})
			}
			return true
		})
		h.destroy(two)
		h.destroy(one)
		equal(h, "one has ended", receive(h, ended), true)
	})
}

// renewing calls RenewPeriodic until done is closed or ctx ends.
func (h *harness) renewing(
	ctx context.Context, ttl, id string, done <-chan struct{},
) <-chan error {
	return call(func() error {
		return h.Session().RenewPeriodic(ttl, id, new(api.WriteOptions).WithContext(ctx), done)
	})
}

func TestC1_RenewPeriodicKeepsASessionAlive(t *testing.T) {
	each(t, func(h *harness) {
		const ttl = 100 * time.Millisecond
		id := h.session(&api.SessionEntry{TTL: ttl.String()})
		done := make(chan struct{})
		result := h.renewing(h.t.Context(), ttl.String(), id, done)
		for range 5 { // in all, the server's time is several TTLs
			n := h.way.count("/v1/session/renew/" + id)
			h.waitFor("/v1/session/renew/"+id, n+2) // the second renewal begins after now
			h.advance(ttl * 9 / 10)
		}
		if h.info(id) == nil {
			h.t.Fatal("the session has ended")
		}
		close(done)
		check(h.t, receive(h, result))
		if h.info(id) != nil {
			h.t.Fatal("done is closed, and the session not destroyed")
		}
	})
}

func TestC1_RenewPeriodicEndsWithItsSession(t *testing.T) {
	each(t, func(h *harness) {
		id := h.session(&api.SessionEntry{TTL: "100ms"})
		result := h.renewing(h.t.Context(), "100ms", id, nil)
		h.destroy(id)
		if err := receive(h, result); !errors.Is(err, api.ErrSessionExpired) {
			h.t.Fatal(err)
		}
	})
}

func TestC1_RenewPeriodicDoesNotDestroyWhenItsContextEnds(t *testing.T) {
	each(t, func(h *harness) {
		ctx, cancel := context.WithCancel(h.t.Context())
		id := h.session(&api.SessionEntry{TTL: "10s"})
		result := h.renewing(ctx, "10s", id, nil)
		cancel()
		if err := receive(h, result); !errors.Is(err, context.Canceled) {
			h.t.Fatal(err)
		}
		if h.info(id) == nil {
			h.t.Fatal("the session is destroyed")
		}
	})
}

func TestC1_RenewPeriodicRidesOutFailures(t *testing.T) {
	each(t, func(h *harness) {
		id := h.session(&api.SessionEntry{TTL: "3s"})
		h.way.fail("/v1/session/renew/", 1) // the client tries again after a second
		done := make(chan struct{})
		result := h.renewing(h.t.Context(), "3s", id, done)
		h.waitFor("/v1/session/renew/", 2)
		close(done)
		check(h.t, receive(h, result))
	})
}
