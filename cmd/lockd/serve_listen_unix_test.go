//go:build unix

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// Ensure that every command can use a server's socket, that only the server's user can connect, and
// that the socket is gone at the end.
func TestServe_Socket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	s := served(t, "--memory", "--http", socketScheme+path)
	if s.url != socketScheme+path {
		t.Errorf("printed %q", s.url)
	}
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("got %v, %v", info.Mode(), err)
	}
	s.at("", "kv", "put", "k", "v").wants(t, 0, "")
	t.Setenv("CONSUL_HTTP_ADDR", s.url)
	t.Setenv("HTTP_PROXY", "http://"+nowhere)
	if r := command(t, "", "kv", "get", "k"); r.out != "v" {
		t.Errorf("got %+v", r)
	}
	if r := command(t, "", "lock", "l", "--", "true"); r.code != 0 {
		t.Errorf("got %+v", r)
	}
	if got := s.end(); !strings.Contains(got, "address=unix://"+path) {
		t.Errorf("logged %s", got)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("left: %v", err)
	}
	command(t, "", "kv", "get", "k").wants(t, exitFailed,
		"no server can be reached at unix://"+path+": ")
}

// Ensure that a page of another origin gets nothing from a socket either, since something may
// forward a port to it, and that any host name is served there.
func TestServe_Socket_PageFromElsewhere(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	s := served(t, "--memory", "--http", socketScheme+path)
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		},
	}}
	for _, test := range []struct {
		header, value string
		status        int
	}{
		{"Origin", "https://evil.example", 403}, {"Sec-Fetch-Site", "cross-site", 403},
		{"Sec-Fetch-Site", "same-site", 403}, {"Sec-Fetch-Site", "none", 200},
		{"Origin", "http://forwarded.example", 200}, {"X-Nothing", "x", 200},
	} {
		for _, method := range []string{http.MethodGet, http.MethodPut} {
			r := newRequest(t, method, "http://forwarded.example/v1/kv/k", "v")
			r.Header.Set(test.header, test.value)
			status, body := send(t, client, r)
			if status == 404 { // nothing has been put yet
				status = 200
			}
			if status != test.status {
				t.Errorf("%s, %s %s: got %d, %q, want %d", method, test.header, test.value, status,
					body, test.status)
			}
		}
	}
	s.end()
}

// Ensure that a socket without a listener is replaced, and that no other file ever is. It is not
// parallel, for the reason of TestServe_Socket_OneOfMany.
func TestServe_Socket_InTheWay(t *testing.T) {
	folder := t.TempDir()
	in := func(name string) string { return filepath.Join(folder, name) }
	serve := func(path string) result {
		return command(t, "", "serve", "--memory", "--http", socketScheme+path)
	}
	write(t, in("file"), []byte("content"))
	serve(in("file")).wants(t, exitFailed, in("file")+": there is something else, which is not")
	serve(in(strings.Repeat("s", 200))).wants(t, exitUsage, "on this system a socket's may have")
	serve(in("absent/s")).wants(t, exitNotFound, in("absent/s")+": no such file")
	if got := string(read(t, in("file"))); got != "content" {
		t.Errorf("the file has %q", got)
	}

	s := served(t, "--memory", "--http", socketScheme+in("s"))
	serve(in("s")).wants(t, exitFailed, in("s")+": a server listens there already; end it, or name")
	s.at("", "kv", "put", "k", "v").wants(t, 0, "")
	s.end()

	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: in("stale"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	s = served(t, "--memory", "--http", socketScheme+in("stale"))
	s.at("", "kv", "put", "k", "v").wants(t, 0, "")
	s.end()
	if got := names(t, folder); len(got) != 1 {
		t.Errorf("left: %q", got)
	}
	for text, args := range map[string][]string{
		"has no path":              {"--http", "unix://"},
		"--tls-cert is for a port": {"--http", "unix://" + in("s"), "--tls-cert", "c", "--tls-key", "k"},
	} {
		command(t, "", append([]string{"serve", "--memory"}, args...)...).wants(t, exitUsage, text)
	}
}

// Ensure that of many servers that begin at one stale socket one listens, and that its end leaves
// the next server's socket. It is not parallel: a process that another test starts has the socket
// of the server that has ended, until its exec.
func TestServe_Socket_OneOfMany(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	for range 20 {
		var mu sync.Mutex
		var listeners []net.Listener
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if l, err := listenOnSocket(path); err == nil {
					mu.Lock()
					defer mu.Unlock()
					listeners = append(listeners, l)
				}
			})
		}
		all.Wait()
		if len(listeners) != 1 {
			t.Fatalf("%d listen", len(listeners))
		}
		first := listeners[0].(*socketListener)
		if err := first.Listener.Close(); err != nil { // as after a kill, the socket stays
			t.Fatal(err)
		}
		second, err := listenOnSocket(path)
		if err != nil {
			t.Fatal(err)
		}
		_ = first.Close()
		unlock, err := lockFolder(path, startPatience)
		if err != nil {
			t.Fatal(err)
		}
		if err := removeStale(path); err == nil || !strings.Contains(err.Error(), "listens there") {
			t.Fatalf("got %v", err)
		}
		unlock()
		if err := second.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Ensure that a lock of the folder that another process keeps holds up a server for a bounded time:
// the beginning fails, and the end leaves a socket that the next server replaces. It is not
// parallel, as TestServe_Socket_OneOfMany.
func TestServe_Socket_FolderLocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	other, err := os.Open(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	flock := func(how int) {
		t.Helper()
		if err := syscall.Flock(int(other.Fd()), how); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		l, err := listenOnSocket(path)
		if err != nil {
			t.Fatal(err)
		}
		flock(syscall.LOCK_SH) // as any user can who may read the folder
		began := time.Now()
		if err := l.Close(); err != nil || time.Since(began) > 2*endPatience {
			t.Errorf("closed after %v: %v", time.Since(began), err)
		}
		began = time.Now()
		_, err = listenOnSocket(path)
		want := "keeps the folder " + filepath.Dir(path) + " locked; end it, or name"
		if err == nil || !strings.Contains(err.Error(), want) ||
			time.Since(began) > 2*startPatience {
			t.Errorf("began after %v: %v", time.Since(began), err)
		}
		time.AfterFunc(startPatience/2, func() { flock(syscall.LOCK_UN) })
		if l, err = listenOnSocket(path); err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	if got := names(t, filepath.Dir(path)); len(got) != 0 {
		t.Errorf("left: %q", got)
	}
}

// Ensure that SIGHUP makes the server read the token again, that a file without a token and a pipe,
// which may never have one, keep the old token, and that the server goes on and ends as ever.
func TestServe_Token_SIGHUP(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	write(t, file, []byte("one"))
	p, log, _ := startLogging(t, "--memory", "--token-file", file, "--node", "n")
	url := p.line()
	status := func(token string) int {
		return command(t, "", "kv", "list", "--http-addr", url, "--token", token).code
	}
	if status("one") != 0 || status("two") == 0 {
		t.Error("before")
	}
	lines := bufio.NewScanner(log)
	var logged strings.Builder
	reload := func(want string) {
		t.Helper()
		p.signal(syscall.SIGHUP)
		for lines.Scan() {
			if fmt.Fprintln(&logged, lines.Text()); strings.Contains(lines.Text(), want) {
				return
			}
		}
		t.Fatalf("no %q in %s: %v", want, logged.String(), lines.Err())
	}
	write(t, file, []byte("two"))
	reload("the token is read again")
	if status("two") != 0 || status("one") == 0 {
		t.Error("after")
	}
	write(t, file, nil)
	reload(fmt.Sprintf("token file %s is empty", file))
	if err := errors.Join(os.Remove(file), syscall.Mkfifo(file, 0o600)); err != nil {
		t.Fatal(err)
	}
	reload(fmt.Sprintf("token file %s is not a regular file", file))
	if status("two") != 0 {
		t.Error("the token is gone")
	}
	p.signal(syscall.SIGTERM)
	p.rest()
	p.ends(0, "")
	for lines.Scan() {
		fmt.Fprintln(&logged, lines.Text())
	}
	if got := logged.String(); !strings.Contains(got, "no token, or a wrong one") ||
		strings.Contains(got, "two") {
		t.Errorf("logged %s", got)
	}
}
