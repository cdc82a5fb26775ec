package conformance_test

import (
	"bytes"
	"io"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/lockd/lockd"
)

func TestA8_ThereIsALeader(t *testing.T) {
	each(t, func(h *harness) {
		leader, err := h.Status().Leader()
		check(h.t, err)
		peers, err := h.Status().Peers()
		check(h.t, err)
		if leader == "" || len(peers) != 1 || peers[0] != leader {
			h.t.Fatalf("leader %q, peers %q", leader, peers)
		}
	})
}

func TestSnapshot_BringsBackKeysAndEndsSessions(t *testing.T) {
	each(t, func(h *harness) {
		h.put("a", "1")
		id := h.session(nil)
		equal(h, "acquire", h.acquire("l", id, "mine"), true)
		stream, meta, err := h.Snapshot().Save(nil)
		check(h.t, err)
		equal(h, "index", meta.LastIndex, h.db.Snapshot().Index()) // as consul snapshot save prints
		saved, err := io.ReadAll(stream)
		check(h.t, err)
		check(h.t, stream.Close())

		p := h.put("a", "2")
		h.put("b", "1")
		waiting := h.blockedGet("a", p.ModifyIndex, 0)
		check(h.t, h.Snapshot().Restore(nil, bytes.NewReader(saved)))
		r := receive(h, waiting) // I14: the client is told
		check(h.t, r.err)
		equal(h, "value", string(h.get("a").Value), "1")
		if h.get("a").ModifyIndex <= p.ModifyIndex {
			h.t.Fatalf("%s, not after %s", brief(h.get("a")), brief(p))
		}
		h.missing("b")
		l := h.get("l")
		equal(h, "its value", string(l.Value), "mine")
		equal(h, "its holder", l.Session, "")
		if h.info(id) != nil {
			h.t.Fatal("the session lives on")
		}
		h.session(nil) // bound to the node's check, which exists again

		err = h.Snapshot().Restore(nil, bytes.NewReader([]byte("garbage")))
		h.refused(err, "Unexpected response code")
		equal(h, "unchanged", brief(h.get("l")), brief(l))
	})
}

func TestS28G2_SessionsAndLocksOutliveTheServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "lockd.db")
		var id string
		for run := range 2 {
			db, err := lockd.Open(path, nil)
			check(t, err)
			h := throughTransport(t, db, short)
			if run == 0 {
				id = h.session(&api.SessionEntry{TTL: "10s"})
				equal(h, "acquire", h.acquire("l", id, "1"), true)
				time.Sleep(9 * time.Second)
			} else {
				time.Sleep(10*time.Second - time.Nanosecond) // its TTL has begun anew
				l := h.get("l")
				equal(h, "holder", l.Session, id)
				time.Sleep(time.Nanosecond)
				synctest.Wait()
				if h.info(id) != nil {
					t.Fatal("the session lives on")
				}
			}
			check(t, db.Close())
		}
	})
}

func TestH18_WhatIsNotThereAnswers404(t *testing.T) {
	each(t, func(h *harness) {
		_, _, err := h.ACL().TokenList(nil)
		h.refused(err, "404 (Invalid URL path: not a recognized HTTP API endpoint")
		_, _, err = h.Event().List("", nil)
		h.refused(err, "404")
		_, _, err = h.KV().Get("a", &api.QueryOptions{Datacenter: "elsewhere"})
		h.refused(err, "500 (No path to datacenter")
		_, _, err = h.KV().Get("a", &api.QueryOptions{Namespace: "n"})
		h.refused(err, `400 (Bad request: Invalid query parameter: "ns"`)
	})
}
