package file_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"testing"

	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/store"
	"github.com/lockd/lockd/store/internal/file"
	"github.com/lockd/lockd/store/internal/format"
)

// editSize is the number of bytes that describe one edit: page, place in it, and the new byte.
const editSize = 4

// smallFile is a file of few pages whose last commit can be taken back. It is kept because bbolt
// chooses pages at random: an edit that was found is worth nothing in a file with other pages.
const (
	smallFile = "testdata/small.db"
	smallPage = 4096
)

// smallRounds are the commits of smallFile.
const smallRounds = 6

func smallRows(s *store.Store, round int) {
	for i := range 60 {
		key := fmt.Sprintf("key/%03d", (i*7+round*11)%200)
		value := bytes.Repeat([]byte{byte(i)}, 20+i)
		s.Keys.Put(key, schema.Key{Key: key, Value: value, ModifyIndex: s.Next()})
		s.Bury(1, key)
	}
	s.Nodes.Put("n", schema.Node{Name: "n", ModifyIndex: s.Next()})
}

// small returns smallFile, and the states of its last two commits.
func small(f *testing.F) (content []byte, last, before whole) {
	f.Helper()
	if *update {
		writeSmall(f)
	}
	content, err := os.ReadFile(smallFile)
	if err != nil {
		f.Fatal(err)
	}
	s := store.New()
	for round := range smallRounds {
		before = last
		smallRows(s, round)
		s.Seal()
		s.PublishMemory()
		last = dump(s)
	}
	return content, last, before
}

func writeSmall(f *testing.F) {
	f.Helper()
	path := filepath.Join(f.TempDir(), "small.db")
	s := store.New()
	if err := s.Open(path, store.Options{NoSync: true}); err != nil {
		f.Fatal(err)
	}
	for round := range smallRounds {
		if err := write(s, func() { smallRows(s, round) }); err != nil {
			f.Fatal(err)
		}
	}
	err := s.Close()
	content, readErr := os.ReadFile(path)
	if err := errors.Join(err, readErr); err != nil {
		f.Fatal(err)
	}
	if os.Getpagesize() != smallPage {
		f.Fatalf("a page has %d bytes here, and is to have %d", os.Getpagesize(), smallPage)
	}
	if err := os.WriteFile(smallFile, content, 0o644); err != nil {
		f.Fatal(err)
	}
}

// FuzzFile edits a file, and looks for an edit that makes Open panic, hang, write, or return a
// state that the file never had. If sealed, the checksums of the meta pages are made to fit, which
// only a program would do. Then every state is allowed that can be written to and read again.
func FuzzFile(f *testing.F) {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		f.Skip("bbolt's files are as the machine is that wrote them")
	}
	content, last, before := small(f)
	path := filepath.Join(f.TempDir(), "lockd.db")
	f.Add([]byte{}, false, uint32(len(content)))
	f.Add([]byte{0, 0, 16, 1, 1, 0, 64, 9}, true, uint32(len(content)))
	f.Fuzz(func(t *testing.T, edits []byte, sealed bool, size uint32) {
		damaged := bytes.Clone(content)
		for ; len(edits) >= editSize; edits = edits[editSize:] {
			at := int(edits[0])*smallPage + int(binary.BigEndian.Uint16(edits[1:]))%smallPage
			damaged[at%len(damaged)] = edits[3]
		}
		if sealed {
			seal(damaged)
			seal(damaged[smallPage:])
		}
		damaged = damaged[:min(size, uint32(len(damaged)))]
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := openStore(path)
		switch {
		case errors.Is(err, store.ErrCorrupt), errors.Is(err, store.ErrFormat):
		case err != nil:
			t.Fatalf("got %v", err)
		case !sealed && got != last && got != before:
			t.Fatalf("a state of index %d was read", got.index)
		}
		after, readErr := os.ReadFile(path)
		if readErr != nil || !bytes.Equal(after, damaged) {
			t.Fatalf("the file was written to: %v", readErr)
		}
		if err == nil {
			fuzzRevival(t, path)
		}
	})
}

// seal makes the checksum of a meta page fit.
func seal(page []byte) {
	sum := fnv.New64a()
	sum.Write(page[headSize : headSize+metaSize-8])
	binary.NativeEndian.PutUint64(page[headSize+metaSize-8:], sum.Sum64())
}

// fuzzRevival writes to a file that was accepted, and reads it again.
func fuzzRevival(t *testing.T, path string) {
	s := store.New()
	if err := s.Open(path, store.Options{NoSync: true}); err != nil {
		t.Fatalf("open again: %v", err)
	}
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		err := write(s, func() {
			for j := range 40 {
				key := fmt.Sprintf("key/%03d", i+j*5)
				s.Keys.Put(key, schema.Key{Key: key, Value: make([]byte, 100*i)})
			}
		})
		if err != nil {
			t.Fatalf("write: %v", err)
		}
	}
	want := dump(s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := openStore(path); err != nil || got != want {
		t.Fatalf("what was written to it came back as index %d, %v, want %d", got.index, err,
			want.index)
	}
}

// FuzzRecord reads the payload of a record: whatever is accepted must be the record of those rows.
func FuzzRecord(f *testing.F) {
	good, err := file.RecordOf(file.RecordHead{Index: 5, Rows: 1, Sum: 9}, []file.RowWrite{
		file.Write(0, "a", nil), file.Write(0, "bb", []byte("xyz")), file.Write(7, "a", nil)})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:3])
	f.Fuzz(func(t *testing.T, payload []byte) {
		head, rows, err := file.ReadRecord(payload)
		if err != nil {
			return
		}
		got, err := file.RecordOf(head, rows)
		if err != nil || !bytes.Equal(got, payload) {
			t.Fatalf("%x is read as %v, %v, which is %x, %v", payload, head, rows, got, err)
		}
	})
}

// FuzzBackup reads a stream as it is, and again with a seal that fits: whatever is accepted must be
// the backup of those rows.
func FuzzBackup(f *testing.F) {
	s := store.New()
	f.Add(backupOf(f, s))
	s.Keys.Put("k", schema.Key{Key: "k", Value: []byte("v"), Session: schema.ID{0xde, 0xad,
		15: 0xef}, ModifyIndex: 2})
	s.Nodes.Put("n", schema.Node{Name: "N", Meta: map[string]string{"a": "b"}})
	s.Services.Put("n\x00s", schema.Service{Node: "N", ID: "s", Tags: []string{"t"}})
	s.Checks.Put("n\x00c", schema.Check{Node: "N", ID: "c", ServiceID: "s"})
	s.Seal()
	s.PublishMemory()
	full := backupOf(f, s)
	f.Add(full)
	f.Add(full[:len(full)-sha256.Size])
	f.Fuzz(func(t *testing.T, stream []byte) {
		sum := sha256.Sum256(stream)
		for _, stream := range [][]byte{stream, append(bytes.Clone(stream), sum[:]...)} {
			backup, err := store.ReadBackup(bytes.NewReader(stream))
			if err != nil {
				if !errors.Is(err, store.ErrCorrupt) && !errors.Is(err, store.ErrFormat) {
					t.Errorf("got %v", err)
				}
				continue
			}
			if again := backupOf(t, restored(t, backup, stream)); !bytes.Equal(again, stream) {
				t.Errorf("%x\nis read as %+v, which is written as\n%x", stream, backup, again)
			}
		}
	})
}

func backupOf(t testing.TB, s *store.Store) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := store.WriteBackup(&b, s.Snapshot()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// restored returns a store with the rows of the backup. The rows of the catalog do not contain
// their keys, so these are read from the stream.
func restored(t *testing.T, backup *store.Backup, stream []byte) *store.Store {
	t.Helper()
	s := store.New()
	s.Raise(backup.Index - 1)
	rest := stream[len("lockd backup")+1:]
	_, n := binary.Uvarint(rest)
	rest = rest[n:]
	next := func() []byte {
		size, n := binary.Uvarint(rest)
		field := rest[n : n+int(size)]
		rest = rest[n+int(size):]
		return field
	}
	nodes, services, checks := backup.Nodes, backup.Services, backup.Checks
	keys := backup.Keys
	for rest[0] != 0xff {
		table := rest[0]
		rest = rest[1:]
		key := string(next())
		next()
		switch table {
		case format.KeyRows.Table:
			s.Keys.Put(key, keys[0])
			keys = keys[1:]
		case format.NodeRows.Table:
			s.Nodes.Put(key, nodes[0])
			nodes = nodes[1:]
		case format.ServiceRows.Table:
			s.Services.Put(key, services[0])
			services = services[1:]
		case format.CheckRows.Table:
			s.Checks.Put(key, checks[0])
			checks = checks[1:]
		}
	}
	s.Seal()
	s.Raise(backup.Index)
	s.PublishMemory()
	return s
}
