//go:build !race

// The race detector reserves memory of its own, for which there would be no room.

package lockd_test

import (
	"errors"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/lockd/lockd"
)

// Ensure that a commit fails if the file cannot be mapped anew for it, as under "ulimit -v", that
// the database fails with the commit, and that Close then gives up the file as usual.
func TestG12_CloseWithoutAddressSpace(t *testing.T) {
	inChild(t, func(h *harness) {
		lock := h.lock(h.session(nil), "k")
		value := make([]byte, 40<<20)
		reserve(1 << 30) // for all that the process needs except the mapping
		room := h.limitAddressSpace(16 << 20)
		if err := second(h.Put("large", value, nil)); !errors.Is(err, lockd.ErrCommit) {
			t.Errorf("put: got %v, want ErrCommit", err)
		}
		if err := h.Close(); !errors.Is(err, lockd.ErrFailed) {
			t.Errorf("close: got %v, want ErrFailed", err)
		}
		if !errors.Is(lock.Err(), lockd.ErrFailed) {
			t.Errorf("lock: %v", lock.Err())
		}
		room()
		h.open()
		if _, found := h.Get("large"); found {
			t.Error("the value is there")
		}
	})
}

// reserve grows the heap to that size, and gives the memory back, but not its addresses.
func reserve(bytes int) {
	ballast := make([]byte, bytes)
	for i := 0; i < len(ballast); i += os.Getpagesize() {
		ballast[i] = 1
	}
	debug.FreeOSMemory()
}

// limitAddressSpace lets the process have that many bytes of addresses more than it has now. The
// returned function takes the limit away.
func (h *harness) limitAddressSpace(more uint64) (room func()) {
	h.t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	h.must(err)
	_, rest, _ := strings.Cut(string(status), "VmSize:")
	size, err := strconv.ParseUint(strings.Fields(rest)[0], 10, 64) // in kB
	h.must(err)
	var before syscall.Rlimit
	h.must(syscall.Getrlimit(syscall.RLIMIT_AS, &before))
	room = func() { h.must(syscall.Setrlimit(syscall.RLIMIT_AS, &before)) }
	limit := syscall.Rlimit{Cur: size<<10 + more, Max: before.Max}
	h.must(syscall.Setrlimit(syscall.RLIMIT_AS, &limit))
	return room
}
