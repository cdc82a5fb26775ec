package main

import (
	"bytes"
	"testing"
)

// Ensure that readers read side by side, that the writer waits for a lost reader's lock-delay, and
// what the program prints.
func TestCache(t *testing.T) {
	const want = `4 readers side by side have read the first edition
a reader has the lock, and is paused before it reads
the writer has the lock, after the reader's lock-delay: true
the writer has replaced the file, and its lock is shared
4 readers side by side have read the second edition
the paused reader wakes up, and has lost its lock: true
`
	var out bytes.Buffer
	if err := run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	if out.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", out.String(), want)
	}
}
