package main

import (
	"bytes"
	"regexp"
	"testing"
)

// earlier is as long as the TTL, or longer on a busy machine.
var earlier = regexp.MustCompile(`last renewal [0-9.]+m?s earlier`)

// Ensure that an instance is gone from the list when it closes its session, and when it hangs.
func TestRegistration(t *testing.T) {
	const want = `+ service/web/web-1 at 10.0.0.1:80
+ service/web/web-2 at 10.0.0.2:80
- service/web/web-1: closed by its owner
+ service/web/web-3 at 10.0.0.3:80
- service/web/web-3: session expired: not renewed within its TTL: last renewal … earlier
left: service/web/web-2 at 10.0.0.2:80
`
	var out bytes.Buffer
	if err := run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	got := earlier.ReplaceAllString(out.String(), "last renewal … earlier")
	if got != want {
		t.Errorf("printed\n%s\nwant\n%s", got, want)
	}
}
