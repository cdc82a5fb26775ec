//go:build linux

package main

import (
	"net"
	"path/filepath"
	"testing"
	"time"
)

// Ensure that systemd is told when the server accepts, and when it ends.
func TestServe_Notify(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("NOTIFY_SOCKET", path)
	s := served(t, "--memory", "--log-level", "warn")
	told := func(want string) {
		t.Helper()
		buffer := make([]byte, 100)
		n, err := conn.Read(buffer)
		if err != nil || string(buffer[:n]) != want {
			t.Errorf("got %q, %v, want %q", buffer[:n], err, want)
		}
	}
	told("READY=1")
	get(t, s.url+"/healthz")
	if got := s.end(); got != "" {
		t.Error(got)
	}
	told("STOPPING=1")

	t.Setenv("NOTIFY_SOCKET", path+"absent")
	if got := served(t, "--memory", "--log-level", "warn").end(); got == "" {
		t.Error("that systemd cannot be told is not logged")
	}
}
