//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Ensure that a server that may have few files open still serves, however many connections are
// idle: idle connections give up their places.
func TestServe_FewFiles(t *testing.T) {
	t.Parallel()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := startProgram(t, nil, "/bin/sh", "-c",
		`ulimit -n 64 && exec "$0" serve --http 127.0.0.1:0 --memory --log-level warn`, program)
	address := strings.TrimPrefix(p.line(), "http://")
	for range 200 {
		dial(t, address).say("GET /v1/kv/k HTTP/1.1\r\nHost: localhost\r\n\r\n")
	}
	command(t, "", "kv", "put", "--http-addr", address, "k", "v").wants(t, 0, "")
	p.signal(syscall.SIGTERM)
	p.rest()
	p.ends(0, "")
}

// Ensure that a signal ends the server within 5 seconds, with exit code 0, despite a query that
// waits, a body that does not come and an idle connection. No other test runs beside this one: it
// would make the server slower.
func TestServe_Signals(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "lockd.db")
			p := start(t, nil, "serve", "--http", "127.0.0.1:0", "--data", path,
				"--log-level", "warn")
			address := strings.TrimPrefix(p.line(), "http://")
			command(t, "", "kv", "put", "--http-addr", address, "k", "v").wants(t, 0, "")
			var k struct{ ModifyIndex uint64 }
			r := command(t, "", "kv", "get", "--json", "--http-addr", address, "k")
			if err := json.Unmarshal([]byte(r.out), &k); err != nil {
				t.Fatal(err)
			}
			waiting := dial(t, address)
			waiting.say("GET /v1/kv/k?index=%d&wait=10m HTTP/1.1\r\nHost: localhost\r\n\r\n",
				k.ModifyIndex)
			for _, request := range []string{
				"PUT /v1/kv/other HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n1",
				"GET /v1/kv/k HTTP/1.1\r\nHost: localhost\r\n\r\n",
				"GET /v1/k",
			} {
				conn, err := net.Dial("tcp", address)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = conn.Close() }()
				if _, err := fmt.Fprint(conn, request); err != nil {
					t.Fatal(err)
				}
			}
			command(t, "", "kv", "get", "--http-addr", address, "k").wants(t, 0, "")
			began := time.Now()
			p.signal(s)
			p.rest()
			p.ends(0, "")
			if got := waiting.status(); got != http.StatusInternalServerError {
				t.Errorf("the query that waits: got %d", got)
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("ended after %v", took)
			}
			command(t, "", "verify", path).wants(t, 0, "")
			if got := names(t, filepath.Dir(path)); len(got) != 1 {
				t.Errorf("left in the folder: %q", got)
			}
		})
	}
}

// Ensure that a signal ends a server that still waits for its file.
func TestServe_SignalBeforeItServes(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lockd.db")
	db := open(t, path)
	p := start(t, nil, "serve", "--http", "127.0.0.1:0", "--data", path, "--wait", "1h")
	p.signal(syscall.SIGTERM)
	p.endsBy(syscall.SIGTERM)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	command(t, "", "verify", path).wants(t, 0, "")
}

// startLogging starts lockd serve in a process whose standard error is a pipe, and returns the end
// of the pipe to read from, and its path.
func startLogging(t *testing.T, args ...string) (p *process, log *os.File, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "log")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // without a writer so far
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	if err := log.SetReadDeadline(time.Now().Add(longest)); err != nil {
		t.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args = append([]string{"-c", `exec "$0" serve --http 127.0.0.1:0 "$@" 2>"$LOG"`, program},
		args...)
	return startProgram(t, []string{"LOG=" + path}, "/bin/sh", args...), log, path
}

// Ensure that a server whose log has no reader any more goes on serving, and closes its file at the
// end.
func TestServe_LogWithoutReader(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lockd.db")
	p, log, _ := startLogging(t, "--data", path, "--token", "t")
	url := p.line()
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	r := newRequest(t, "GET", url+"/v1/kv/k", "")
	if status, _ := send(t, http.DefaultClient, r); status != 403 { // which is logged
		t.Errorf("got %d", status)
	}
	command(t, "", "kv", "put", "--http-addr", url, "--token", "t", "k", "v").wants(t, 0, "")
	p.signal(syscall.SIGTERM)
	p.rest()
	p.ends(0, "")
	command(t, "", "verify", "--wait", "0s", path).wants(t, 0, "")
}

// Ensure that a signal ends a server, and closes its file, though the reader of its log does not
// read: the pipe is full.
func TestServe_LogThatNobodyReads(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lockd.db")
	p, _, log := startLogging(t, "--data", path)
	url := p.line()
	fd, err := syscall.Open(log, syscall.O_WRONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(fd) }()
	for size := 4096; size > 0; { // the last bytes of room take no large write
		if _, err := syscall.Write(fd, make([]byte, size)); err == syscall.EAGAIN {
			size /= 2
		} else if err != nil {
			t.Fatal(err)
		}
	}
	p.signal(syscall.SIGHUP) // which is logged
	command(t, "", "kv", "put", "--http-addr", url, "k", "v").wants(t, 0, "")
	p.signal(syscall.SIGTERM)
	p.rest()
	p.ends(0, "")
	command(t, "", "verify", "--wait", "0s", path).wants(t, 0, "")
}
