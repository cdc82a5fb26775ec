package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockd/lockd"
)

// Ensure that a file that no token can be in is not read to its end: a device may have none.
func TestToken_LargeFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	write(t, file, bytes.Repeat([]byte("t"), 64<<10+1))
	command(t, "", "kv", "get", "--http-addr", nowhere, "--token-file", file, "k").wants(t,
		exitFailed, "--token-file: token file "+file+" has more than 65536 bytes")
}

// Ensure that refused requests are logged at a bounded rate, and that all of them are counted.
func TestSecret_RefusalsAreLoggedAtABoundedRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		counted := 0
		token := newSecret("t", "", slog.New(slog.NewTextHandler(&log, nil)),
			func() { counted++ })
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("X-Consul-Token", "guess\n")
		lines := func(want ...string) {
			t.Helper()
			got := strings.Split(strings.TrimSuffix(log.String(), "\n"), "\n")
			if len(got) != len(want) {
				t.Fatalf("got %q, want %q", got, want)
			}
			for i := range want {
				if !strings.Contains(got[i], want[i]) || strings.Contains(got[i], "guess") {
					t.Errorf("got %q, want %q", got[i], want[i])
				}
			}
		}
		for range 1000 {
			token.note(r)
		}
		lines("count=1 last_from=192.0.2.1:1234")
		time.Sleep(refusalPause - 1)
		token.note(r)
		lines("count=1 ")
		time.Sleep(time.Nanosecond)
		token.note(r)
		lines("count=1 ", "count=1001 ")
		time.Sleep(time.Hour)
		token.note(r)
		lines("count=1 ", "count=1001 ", "count=1 ")
		if counted != 1003 {
			t.Errorf("counted %d", counted)
		}
	})
}

// Ensure that a token that cannot be read leaves the token before it in force.
func TestSecret_Reload(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	write(t, file, []byte("new\n"))
	allows := func(s *secret, token string) bool {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("X-Consul-Token", token)
		return s.inForce.Load().allows(r)
	}
	token := newSecret("old", file, slog.New(slog.DiscardHandler), func() {})
	if !allows(token, "old") || allows(token, "new") || allows(token, "") {
		t.Error("before")
	}
	if err := token.reload(); err != nil || allows(token, "old") || !allows(token, "new") {
		t.Errorf("after: %v", err)
	}
	write(t, file, []byte(" \n"))
	if err := token.reload(); err == nil || !allows(token, "new") || allows(token, "") {
		t.Errorf("an empty file: %v", err)
	}
	write(t, file, []byte("newer\n# the token of May\n"))
	if err := token.reload(); err == nil || !allows(token, "new") {
		t.Errorf("a file that has two lines: %v", err)
	}
	token.file = filepath.Join(file, "absent")
	if err := token.reload(); err == nil || !allows(token, "new") {
		t.Errorf("no file: %v", err)
	}
	token.file = ""
	if err := token.reload(); err == nil || !strings.Contains(err.Error(), "no --token-file") {
		t.Errorf("a token of the command line: %v", err)
	}
}

// Ensure that a byte-order mark, with which editors of Windows begin a text, is no part of a token:
// no client would send it.
func TestToken_ByteOrderMark(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	write(t, file, []byte("\ufeff secret\r\n"))
	if token, err := readToken(file); token != "secret" || err != nil {
		t.Errorf("got %q, %v", token, err)
	}
	write(t, file, []byte("\ufeff\r\n"))
	if token, err := readToken(file); err == nil || !strings.Contains(err.Error(), "is empty") {
		t.Errorf("a mark alone: got %q, %v", token, err)
	}
}

// Ensure that a token that takes another's place ends the blocked queries and the streams of pages
// that bore the other, and that the same token, read again, ends nothing.
func TestSecret_ReplacedTokenEndsRequests(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	synctest.Test(t, func(t *testing.T) {
		logger := slog.New(slog.DiscardHandler)
		db, err := lockd.New(&lockd.Options{Logger: logger})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = db.Close() }()
		k, err := db.Put("k", nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		s := &service{token: "old", tokenFile: file, logger: logger}
		server, err := s.server(db)
		if err != nil {
			t.Fatal(err)
		}
		p := &pipes{t: t, conns: make(chan net.Conn), closed: make(chan struct{})}
		var all sync.WaitGroup
		all.Go(func() { _ = server.Serve(p) })
		defer all.Wait()
		defer func() { _ = server.stop(patience) }()

		ended := make(chan int, 2)
		for _, request := range []string{
			fmt.Sprintf("GET /v1/kv/k?index=%d&wait=10m HTTP/1.1\r\n", k.ModifyIndex),
			"GET /ui/ HTTP/1.1\r\nAccept: text/event-stream\r\n",
		} {
			c := p.dial()
			c.say("%sHost: localhost\r\nX-Consul-Token: old\r\n\r\n", request)
			all.Go(func() { ended <- c.status() })
		}
		reload := func(token string) {
			t.Helper()
			write(t, file, []byte(token))
			synctest.Wait() // until the requests wait
			if err := server.token.reload(); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		reload("old")
		if len(ended) != 0 {
			t.Error("the same token ends requests")
		}
		reload("new")
		if len(ended) != 2 {
			t.Fatalf("%d of 2 requests have ended", len(ended))
		}
		got := []int{<-ended, <-ended}
		if slices.Sort(got); !slices.Equal(got, []int{200, 500}) {
			t.Errorf("the page and the query: got %v", got)
		}
	})
}
