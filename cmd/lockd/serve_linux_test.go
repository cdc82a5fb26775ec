package main

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// Ensure that SIGHUP, which asks for the token to be read again, does not end a server that still
// waits for its file.
func TestServe_SIGHUPBeforeItServes(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lockd.db")
	db := open(t, path)
	p := start(t, nil, "serve", "--http", "127.0.0.1:0", "--data", path, "--wait", "1h",
		"--log-level", "error")
	p.opens(path)
	p.signal(syscall.SIGHUP)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	p.line() // the URL
	p.signal(syscall.SIGTERM)
	p.rest()
	p.ends(0, "")
}

// Ensure that a signal ends a server at once that still waits for the folder of its socket. It is
// not parallel: a process that another test starts has the lock of the folder, until its exec.
func TestServe_SignalBeforeItListens(t *testing.T) {
	folder, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = folder.Close() }()
	if err := syscall.Flock(int(folder.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	p := start(t, nil, "serve", "--http", socketScheme+folder.Name()+"/s", "--memory",
		"--log-level", "error")
	p.opens(folder.Name())
	p.signal(syscall.SIGTERM)
	p.endsBy(syscall.SIGTERM)
}

// opens waits until the process has the file at the path open.
func (p *process) opens(path string) {
	p.t.Helper()
	for end := time.Now().Add(patience); !p.hasOpen(path); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			p.t.Fatalf("it does not open %s", path)
		}
	}
}

// hasOpen reports whether the process has the file at the path open.
func (p *process) hasOpen(path string) bool {
	links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", p.Process.Pid))
	for _, link := range links {
		if to, err := os.Readlink(link); err == nil && to == path {
			return true
		}
	}
	return false
}
