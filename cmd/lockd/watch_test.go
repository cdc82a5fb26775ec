package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/consul/api"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/consulapi"
)

// watching is a lockd watch that runs in this process.
type watching struct {
	t     *testing.T
	lines *bufio.Reader
}

// watch starts to watch, and returns when the watch has begun.
func watch(t *testing.T, s *serving, args ...string) *watching {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	read, write := io.Pipe()
	ended := make(chan struct{})
	args = append([]string{"lockd", "watch", "--http-addr", s.url}, args...)
	go func() {
		defer close(ended)
		if code := run(ctx, args, strings.NewReader(""), write, io.Discard); code != 0 {
			t.Errorf("exit code %d", code)
		}
		_ = write.Close()
	}()
	t.Cleanup(func() {
		stop()
		_ = read.Close()
		<-ended
	})
	return &watching{t, bufio.NewReader(read)}
}

func (w *watching) line() string {
	w.t.Helper()
	line, err := w.lines.ReadString('\n')
	if err != nil {
		w.t.Fatal(err)
	}
	return strings.TrimSuffix(line, "\n")
}

// Ensure that a watch tells what is there and what happens to keys under the prefix, in order, and
// nothing else.
func TestWatch(t *testing.T) {
	t.Parallel()
	s := served(t, "--memory")
	s.at("", "kv", "put", "dir/old", "v").wants(t, 0, "")
	w, asJSON := watch(t, s, "dir/"), watch(t, s, "--json", "dir/")
	seen := func(change, key, session string) {
		t.Helper()
		e := api.KVPair{Key: key}
		if change != "deleted" {
			e = s.entry(key)
		}
		index, rest, _ := strings.Cut(w.line(), "\t")
		if rest != change+"\t"+key+"\t"+cell(session) ||
			change != "deleted" && index != fmt.Sprint(e.ModifyIndex) {
			t.Errorf("got %s %q, want %s of %+v", index, rest, change, e)
		}
		var got struct {
			Index       uint64
			Change, Key string
			Entry       *api.KVPair
		}
		if err := json.Unmarshal([]byte(asJSON.line()), &got); err != nil {
			t.Fatal(err)
		}
		if got.Change != change || got.Key != key || fmt.Sprint(got.Index) != index ||
			(got.Entry == nil) != (change == "deleted") ||
			got.Entry != nil && got.Entry.ModifyIndex != e.ModifyIndex {
			t.Errorf("got %+v, want %s of %+v", got, change, e)
		}
	}
	seen("present", "dir/old", "")
	s.at("", "kv", "put", "elsewhere", "v").wants(t, 0, "")
	s.at("", "kv", "put", "dir/new", "v").wants(t, 0, "")
	seen("put", "dir/new", "")

	_, body := send(t, http.DefaultClient, newRequest(t, "PUT", s.url+"/v1/session/create", "{}"))
	var made struct{ ID string }
	s.decode(result{out: body}, &made)
	url := s.url + "/v1/kv/dir/old"
	send(t, http.DefaultClient, newRequest(t, "PUT", url+"?acquire="+made.ID, "v"))
	seen("locked", "dir/old", made.ID)
	send(t, http.DefaultClient, newRequest(t, "PUT", url+"?release="+made.ID, "v"))
	seen("released", "dir/old", "")
	s.at("", "kv", "delete", "dir/new").wants(t, 0, "")
	seen("deleted", "dir/new", "")
}

// Ensure that a watch without a prefix watches every key.
func TestWatch_Everything(t *testing.T) {
	t.Parallel()
	s := served(t, "--memory")
	w := watch(t, s)
	for _, key := range []string{"a", "dir/b"} {
		s.at("", "kv", "put", key, "v").wants(t, 0, "")
		if _, rest, _ := strings.Cut(w.line(), "\t"); !strings.HasSuffix(rest, "\t"+key+"\t-") {
			t.Errorf("got %q, want %s", rest, key)
		}
	}
}

// Ensure that keys that are not UTF-8, which the server's JSON shows alike, are told apart: a
// change of another key is no change of theirs.
func TestWatch_NotUTF8(t *testing.T) {
	t.Parallel()
	s := served(t, "--memory")
	s.at("", "kv", "put", "\xfe", "v").wants(t, 0, "")
	s.at("", "kv", "put", "\xff", "v").wants(t, 0, "")
	w := watch(t, s)
	seen := func(want string) {
		t.Helper()
		if _, rest, _ := strings.Cut(w.line(), "\t"); rest != want+"\t-" {
			t.Errorf("got %q, want %q", rest, want)
		}
	}
	seen("present\t\ufffd")
	seen("present\t\ufffd")
	for _, key := range []string{"a", "b"} {
		s.at("", "kv", "put", key, "v").wants(t, 0, "")
		seen("put\t" + key)
	}
	s.at("", "kv", "delete", "\xfe").wants(t, 0, "")
	seen("deleted\t\ufffd")
	s.at("", "kv", "put", "\xff", "other").wants(t, 0, "")
	seen("put\t\ufffd")
}

// Ensure that a watch outlives its server, and then tells the differences.
func TestWatch_ServerAway(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lockd.db")
	s := served(t, "--data", path)
	address := strings.TrimPrefix(s.url, "http://")
	s.at("", "kv", "put", "k", "1").wants(t, 0, "")
	s.at("", "kv", "put", "gone", "1").wants(t, 0, "")
	w := watch(t, s, "")
	for range 2 {
		if got := w.line(); !strings.Contains(got, "present") {
			t.Error(got)
		}
	}
	s.end()
	db := open(t, path)
	_, err1 := db.Put("k", []byte("2"), nil)
	_, err2 := db.Delete("gone")
	if err := errors.Join(err1, err2, db.Close()); err != nil {
		t.Fatal(err)
	}
	served(t, "--data", path, "--http", address)
	for _, want := range []string{"put\tk\t", "deleted\tgone\t"} {
		if got := w.line(); !strings.Contains(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// Ensure that a watch tells a change although the server's indexes began anew and the key has the
// same ones as before.
func TestWatch_IndexesBeginAnew(t *testing.T) {
	t.Parallel()
	var current atomic.Pointer[http.Handler]
	begin := func(value string) *lockd.DB {
		db, err := lockd.New(nil)
		if err == nil {
			_, err = db.Put("k", []byte(value), nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		handler, err := consulapi.Handler(db, nil)
		if err != nil {
			t.Fatal(err)
		}
		current.Store(&handler)
		return db
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		(*current.Load()).ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	first := begin("old")
	w := watch(t, &serving{url: server.URL}, "")
	if got := w.line(); !strings.Contains(got, "present\tk") {
		t.Error(got)
	}
	second := begin("new")
	_, err := second.Put("other", nil, nil) // the watch does not wait for an index that is there
	if err = errors.Join(err, first.Close()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"put\tk\t", "put\tother\t"} {
		if got := w.line(); !strings.Contains(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
}

// Ensure that a missing server is an error, and that the watch does not wait for it.
func TestWatch_NoServer(t *testing.T) {
	t.Parallel()
	r := command(t, "", "watch", "--http-addr", "127.0.0.1:1", "k")
	r.wants(t, exitFailed, "refused")
}
