package file_test

import (
	"encoding/binary"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"testing"
)

// secureBelow opens a file of the content, and secures it while no file of this process can be
// written from that offset on. Then it secures the file again.
func secureBelow(t *testing.T, content []byte, offset int) error {
	t.Helper()
	path := newPath(t)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	f := openFile(t, path, quick)
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	limit := syscall.Rlimit{Cur: uint64(offset), Max: before.Max}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	failed := f.Secure()
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	if err := f.Secure(); err != nil {
		t.Errorf("again: %v", err)
	}
	closeFile(t, f)
	return failed
}

// change returns the offset of the first sector in which the contents differ.
func change(before, after []byte) int {
	at := 0
	for at < min(len(before), len(after)) && before[at] == after[at] {
		at++
	}
	return at / sector * sector
}

// Ensure that a file is not secured if the disk does not take one of the writes: of the newest meta
// page, of the newest record, or of the empty sectors where the next record goes.
func TestFailedSync_G2_NothingIsSecuredWithoutAWrite(t *testing.T) {
	signal.Ignore(syscall.SIGXFSZ) // so that a write returns an error
	defer signal.Reset(syscall.SIGXFSZ)
	for name, fn := range traffic {
		t.Run(name, func(t *testing.T) {
			list := images(t, 30, fn, nil)
			for i := 1; i < len(list)-1; i++ {
				last, now, next := list[i-1], list[i], list[i+1]
				offset := change(last.content, now.content)
				if err := secureBelow(t, now.content, offset); !errors.Is(err, syscall.EFBIG) {
					t.Errorf("commit %d: got %v without its write", i, err)
				}
				offset = change(now.content, next.content)
				const number = 8 // of a sector's record is behind these bytes
				empty := binary.BigEndian.Uint64(now.content[offset+number:]) == 0
				if !next.sameTables(now) || !empty {
					continue
				}
				if err := secureBelow(t, now.content, offset); !errors.Is(err, syscall.EFBIG) {
					t.Errorf("commit %d: got %v where the next one goes", i, err)
				}
			}
		})
	}
}
