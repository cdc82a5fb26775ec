//go:build unix

package main

import (
	"os"
	"testing"
)

// lockingWithInput starts lockd lock on key k, with a device as its standard input.
func lockingWithInput(t *testing.T, address, device, script string) *process {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return startProgram(t, []string{"DEVICE=" + device}, "sh", "-c", `exec "$0" "$@" <"$DEVICE"`,
		program, "lock", "--http-addr", address, "k", "--", "sh", "-c", script)
}

// Ensure that the command can read from a device that is not a terminal.
func TestLock_DeviceAsInput(t *testing.T) {
	t.Parallel()
	_, s := testServer(t)
	p := lockingWithInput(t, s.URL, "/dev/zero", "head -c 3 | wc -c | tr -d ' '")
	if got := p.rest(); got != "3\n" {
		t.Errorf("output %q", got)
	}
	p.ends(0, "")
}
