package file

import (
	"encoding/binary"
	"os"

	"github.com/lockd/lockd/store/internal/format"
)

// A process whose writes are all synced writes the clean word when it closes the file: in the page
// of the newest meta page, in a sector that bbolt does not use. The word names bbolt's last commit
// and the next record of the log; it is void after another commit, or when that record is there.
// The word itself need not be synced: if a power cut takes it, the next process only writes again
// what is on disk. But a file that lacks what its word names has lost it.
//
// A process removes the word before it writes anything else. So a process that is killed, or whose
// sync has failed, leaves no word.
type cleanWord struct{ commit, next uint64 }

const (
	cleanAt   = sectorSize // bytes of the page before it
	cleanSize = format.ChecksumSize + 2*numberSize
)

// bytes returns the word as it is in the file.
func (w cleanWord) bytes() []byte {
	raw := make([]byte, format.ChecksumSize, cleanSize)
	raw = binary.BigEndian.AppendUint64(raw, w.commit)
	raw = binary.BigEndian.AppendUint64(raw, w.next)
	binary.BigEndian.PutUint32(raw, cleanSum(raw))
	return raw
}

func cleanSum(raw []byte) uint32 {
	return format.Checksum(format.CleanTable, nil, raw[format.ChecksumSize:])
}

// cleanPlace is where in a file the clean word of that commit is.
func cleanPlace(commit, pageSize uint64) int64 { return int64(commit%2*pageSize) + cleanAt }

// readCleanWord returns the clean word at that place, or zeros, which name nothing.
func readCleanWord(f *os.File, place int64) cleanWord {
	raw := make([]byte, cleanSize)
	_, err := f.ReadAt(raw, place)
	if err != nil || binary.BigEndian.Uint32(raw) != cleanSum(raw) {
		return cleanWord{}
	}
	return cleanWord{
		commit: binary.BigEndian.Uint64(raw[format.ChecksumSize:]),
		next:   binary.BigEndian.Uint64(raw[format.ChecksumSize+numberSize:]),
	}
}

// lastClean returns the newest of the clean words that the file may have.
func lastClean(f *os.File, pageSize uint64) cleanWord {
	first := readCleanWord(f, cleanPlace(0, pageSize))
	second := readCleanWord(f, cleanPlace(1, pageSize))
	if second.commit > first.commit {
		return second
	}
	return first
}

var errLastLost = corrupt("it lacks the last commit that it had when it was closed: the disk has " +
	"lost a write, or the meta page of that commit is damaged")
