package lockdui_test

import (
	"testing"
	"time"

	"github.com/lockd/lockd/lockdui"
)

// Ensure that a figure has the unit that fits it once it is rounded: no page says 1000.0 kB.
func TestText_Units(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 bytes", 999: "999 bytes", 1000: "1.0 kB", 999_949: "999.9 kB", 999_950: "1.0 MB",
		999_949_999: "999.9 MB", 999_950_000: "1.0 GB", 1_234_000_000_000: "1234.0 GB",
	} {
		if got := lockdui.Size(n); got != want {
			t.Errorf("%d bytes: got %s, want %s", n, got, want)
		}
	}
	for d, want := range map[time.Duration]string{
		0: "0 µs", 999_499: "999 µs", 999_500: "1.00 ms", 999_994_999: "999.99 ms",
		999_995_000: "1.00 s", 1234 * time.Second: "1234.00 s",
	} {
		if got := lockdui.Cost(d); got != want {
			t.Errorf("%v: got %s, want %s", d, got, want)
		}
	}
}
