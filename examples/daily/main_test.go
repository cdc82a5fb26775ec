package main

import (
	"bytes"
	"testing"
)

// Ensure that the job is done once a day, also after a restart, and again if it fails.
func TestDaily(t *testing.T) {
	const want = `2026-11-20: 3 asked, done 1 times, failed 0 times
2026-11-20: 3 asked, done 0 times, failed 0 times
2026-11-21: 3 asked, done 1 times, failed 1 times
            printer on fire
`
	var out bytes.Buffer
	if err := run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	if out.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", out.String(), want)
	}
}
