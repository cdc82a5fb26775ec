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
	for end := time.Now().Add(patience); !p.hasOpen(path); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it does not open the file")
		}
	}
	p.signal(syscall.SIGHUP)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	p.line() // the URL
	p.signal(syscall.SIGTERM)
	p.rest()
	p.ends(0, "")
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
