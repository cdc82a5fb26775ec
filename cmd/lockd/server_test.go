package main

import (
	"net/http/httptest"
	"testing"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/consulapi"
)

// testServer serves an empty database on loopback, and returns it and the address.
func testServer(t *testing.T) (*lockd.DB, *httptest.Server) {
	t.Helper()
	db, err := lockd.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	api, err := consulapi.Handler(db, &consulapi.Options{MinTTL: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(api)
	t.Cleanup(func() {
		s.Close()
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db, s
}

// sessionsOf returns the sessions of a database.
func sessionsOf(db *lockd.DB) []lockd.SessionInfo {
	var sessions []lockd.SessionInfo
	for info := range db.Snapshot().Sessions() {
		sessions = append(sessions, info)
	}
	return sessions
}
