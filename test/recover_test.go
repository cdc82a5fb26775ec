package lockd_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/catalog"
	"github.com/lockd/lockd/store"
)

// ruin is a file that is to be damaged, and what is known of it.
type ruin struct {
	t       *testing.T
	random  *rand.Rand
	path    string
	images  [][]byte                   // the file after some of the commits; the last one is whole
	history map[string]map[string]bool // by key: each entry that it ever had
	final   map[string]string          // by key: its entry in the end
	catalog int                        // nodes, services and checks in the end

	entries, kept int // in all that was recovered of files that were not cut off
}

func entryText(e lockd.Entry) string {
	return fmt.Sprintf("%d %d %d %x", e.CreateIndex, e.ModifyIndex, e.Flags, e.Value)
}

// keep takes note of what the database has.
func (r *ruin) keep(db *lockd.DB) {
	r.final = make(map[string]string)
	for key, e := range db.Snapshot().Prefix("") {
		r.final[key] = entryText(e)
		if r.history[key] == nil {
			r.history[key] = make(map[string]bool)
		}
		r.history[key][r.final[key]] = true
	}
	r.images = append(r.images, readFile(r.t, r.path))
}

// newRuin makes a file by that many transactions of that many changes.
func newRuin(t *testing.T, random *rand.Rand, transactions, changes int, compact bool) *ruin {
	t.Helper()
	r := &ruin{t: t, random: random, path: filepath.Join(t.TempDir(), "lockd.db"),
		history: make(map[string]map[string]bool)}
	db, err := lockd.Open(r.path, &lockd.Options{Sync: lockd.SyncNever})
	r.must(err)
	r.must(db.Update(func(tx *lockd.Txn) error {
		return errors.Join(tx.Catalog().PutNode(catalog.Node{Name: "N"}),
			tx.Catalog().PutService(catalog.Service{Node: "N", Name: "web"}),
			tx.Catalog().PutCheck(catalog.Check{Node: "N", Name: "up", ServiceID: "web"}))
	}))
	s, err := db.NewSession(&lockd.SessionOptions{Lifetime: lockd.Independent})
	r.must(err)
	r.catalog = 4 // with the node of the process
	for i := range transactions {
		r.must(db.Update(func(tx *lockd.Txn) error {
			for range changes {
				key := fmt.Sprintf("key/%03d", random.IntN(400))
				var err error
				switch random.IntN(6) {
				case 0:
					_, err = tx.Delete(key)
				default:
					value := strings.Repeat(string(rune('a'+i%26)), random.IntN(600))
					_, err = tx.Put(key, []byte(value), &lockd.PutOptions{Flags: uint64(i)})
				}
				if err != nil {
					return err
				}
			}
			return nil
		}))
		if i%10 == 0 {
			_, err := s.TryLock(fmt.Sprintf("lock/%03d", i), nil)
			r.must(err)
		}
		r.keep(db)
	}
	r.must(db.Close())
	if compact {
		r.must(lockd.Compact(r.path, &lockd.Options{Sync: lockd.SyncNever}))
		r.images = append(r.images, readFile(t, r.path))
	}
	r.images[len(r.images)-1] = readFile(t, r.path)
	return r
}

func (r *ruin) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// damage returns the file, damaged in some way, and what was done to it.
func (r *ruin) damage() (content []byte, what string) {
	content = bytes.Clone(r.images[len(r.images)-1])
	page := os.Getpagesize()
	pages, random := len(content)/page, r.random
	older := r.images[random.IntN(len(r.images))]
	at := random.IntN(pages) * page
	if random.IntN(4) == 0 { // what most rows hang on
		at = random.IntN(min(pages, 8)) * page
	}
	switch random.IntN(8) {
	case 0:
		for range 1 + random.IntN(8) {
			bit := random.IntN(8 * len(content))
			content[bit/8] ^= 1 << (bit % 8)
		}
		return content, "bits"
	case 1:
		bit := random.IntN(8 * 64)
		content[at+bit/8] ^= 1 << (bit % 8)
		return content, fmt.Sprintf("bit %d of the head of page %d", bit, at/page)
	case 2:
		clear(content[at : at+page])
		return content, fmt.Sprintf("zeros in page %d", at/page)
	case 3:
		for i := range page {
			content[at+i] = byte(random.Uint32())
		}
		return content, fmt.Sprintf("noise in page %d", at/page)
	case 4:
		sector := at + 512*random.IntN(page/512)
		cut := random.IntN(512)
		clear(content[sector+cut : sector+512])
		return content, fmt.Sprintf("sector at %d torn at %d", sector, cut)
	case 5:
		copy(content[at:], content[random.IntN(pages)*page:][:page])
		return content, fmt.Sprintf("another page in place of %d", at/page)
	case 6:
		half := at + page/2
		if half < len(older) {
			copy(content[half:half+page/2], older[half:])
		}
		return content, fmt.Sprintf("half of page %d as it was before", at/page)
	}
	size := random.IntN(len(content))
	return content[:size], fmt.Sprintf("cut off at %d", size)
}

// backedUp returns the entries of the keys of a backup, and how many other rows it has.
func backedUp(t *testing.T, backup []byte) (keys map[string]string, others int) {
	t.Helper()
	b, err := store.ReadBackup(bytes.NewReader(backup))
	if err != nil {
		t.Fatal(err)
	}
	keys = make(map[string]string)
	for _, row := range b.Keys {
		keys[row.Key] = entryText(lockd.Entry{CreateIndex: row.CreateIndex,
			ModifyIndex: row.ModifyIndex, Flags: row.Flags, Value: row.Value})
	}
	return keys, len(b.Nodes) + len(b.Services) + len(b.Checks)
}

// recovered recovers the content, checks the file, and returns the backup.
func (r *ruin) recovered(content []byte, what string) ([]byte, *lockd.Recovery) {
	r.t.Helper()
	r.must(os.WriteFile(r.path, content, 0o600))
	before, err := os.Stat(r.path)
	r.must(err)
	var backup bytes.Buffer
	found, err := lockd.Recover(r.path, &backup, nil)
	after, statErr := os.Stat(r.path)
	r.must(statErr)
	if !bytes.Equal(readFile(r.t, r.path), content) || !after.ModTime().Equal(before.ModTime()) {
		r.t.Errorf("%s: the file was written to", what)
	}
	if err != nil {
		refused := errors.Is(err, lockd.ErrCorrupt) || errors.Is(err, lockd.ErrFormat)
		if found != nil || !refused || !strings.HasPrefix(what, "cut off") || backup.Len() > 0 {
			r.t.Errorf("%s: got %v", what, err)
		}
		return nil, nil
	}
	return backup.Bytes(), found
}

// check checks what was recovered. If a row is neither there as it was in the end, nor reported by
// its name, there must be a report that may be of that row.
func (r *ruin) check(backup []byte, found *lockd.Recovery, what string) {
	r.t.Helper()
	keys, others := backedUp(r.t, backup)
	if len(keys) != found.Keys || others != found.Nodes+found.Services+found.Checks {
		r.t.Errorf("%s: got %+v of %d keys and %d others", what, found, len(keys), others)
	}
	missing, anyMissing, anyDoubtful := make(map[string]bool), false, false
	for _, m := range found.Missing {
		table, key := named(m)
		missing[key] = true
		_, known := r.final[key] // or it is the name that is damaged
		anyMissing = anyMissing || table == "" || table == "keys" && !known
	}
	doubtful := make(map[string]bool)
	for _, d := range found.Doubtful {
		table, key := named(d)
		doubtful[key] = table == "keys"
		anyDoubtful = anyDoubtful || table == ""
	}
	for key, entry := range keys {
		switch {
		case !r.history[key][entry]:
			r.t.Errorf("%s: %s was never %.50s", what, key, entry)
		case r.final[key] != entry && !doubtful[key] && !anyDoubtful && !anyMissing:
			r.t.Errorf("%s: %s is %.50s, and nothing is said of it", what, key, entry)
		}
	}
	for key := range r.final {
		if _, there := keys[key]; !there && !missing[key] && !anyMissing && !anyDoubtful {
			r.t.Errorf("%s: %s is missing, and nothing is said of it", what, key)
		}
	}
	if !strings.Contains(what, "cut off") {
		for key, entry := range r.final {
			r.entries++
			if keys[key] == entry {
				r.kept++
			}
		}
	}
	if others < r.catalog && len(found.Missing) == 0 && !anyDoubtful {
		r.t.Errorf("%s: %d of %d rows of the catalog, and nothing is said of it", what, others,
			r.catalog)
	}
}

// named returns the table and the key that a text of a Recovery begins with.
func named(text string) (table, key string) {
	of := regexp.MustCompile(`^(\w+): (?:("(?:[^"\\]|\\.)*"): )?`)
	found := of.FindStringSubmatch(text)
	if found == nil {
		return "", ""
	}
	key, _ = strconv.Unquote(found[2])
	return found[1], key
}

// taken reports whether Open takes the file as it is, and checks that it reads what was recovered.
// It may be the state before the last commit, if the newest record is as it was before that commit:
// this looks as a crash does.
func (r *ruin) taken(backup []byte, what string) bool {
	r.t.Helper()
	var want bytes.Buffer
	if err := lockd.BackupFile(r.path, &want, nil); err != nil {
		return false
	}
	if !bytes.Equal(backup, want.Bytes()) {
		r.t.Errorf("%s: Open takes the file, and what was recovered is something else", what)
	}
	return true
}

// restore makes a database of the backup, which must be one that Open takes.
func (r *ruin) restore(backup []byte, what string) {
	r.t.Helper()
	path := filepath.Join(r.t.TempDir(), "restored.db")
	if err := lockd.Restore(path, bytes.NewReader(backup), 0, nil); err != nil {
		r.t.Errorf("%s: restore: %v", what, err)
		return
	}
	if err := lockd.Verify(path, nil); err != nil {
		r.t.Errorf("%s: %v", what, err)
	}
}

// Ensure that Recover, of a file that is damaged anywhere and in any way, never panics or touches
// the file, saves only rows that were committed at some time, reports each row that may be older or
// have gone, and loses no row without a report; and that Restore takes the backup.
func TestRecover_Damage(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rounds := 120
	if testing.Short() || raced {
		rounds = 60 // with fewer, one file that loses most entries may count for too much
	}
	for i, test := range []struct {
		name                  string
		transactions, changes int
		compact               bool
	}{
		{"Log", 120, 12, false},
		{"Tables", 3, 700, false},
		{"Compacted", 60, 20, true},
		{"Small", 8, 1, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, uint64(i)))
			r := newRuin(t, random, test.transactions, test.changes, test.compact)
			whole := 0
			for round := range rounds {
				content, what := r.damage()
				what = fmt.Sprintf("round %d: %s", round, what)
				backup, found := r.recovered(content, strings.TrimPrefix(what,
					fmt.Sprintf("round %d: ", round)))
				if found == nil {
					continue
				}
				if len(found.Missing)+len(found.Doubtful) == 0 {
					whole++
					if r.taken(backup, what) {
						continue
					}
				}
				r.check(backup, found, what)
				if round%10 == 0 {
					r.restore(backup, what)
				}
				if t.Failed() {
					t.Logf("missing %v", found.Missing)
					t.Fatalf("doubtful %v", found.Doubtful)
				}
			}
			if whole == rounds {
				t.Error("nothing was ever missing or doubtful")
			}
			if r.kept*100 < r.entries*85 { // of a small file it may be the page that has all
				t.Errorf("%d entries of %d were as they had been", r.kept, r.entries)
			}
		})
	}
}

// Ensure that Recover leaves out a newest record of which a disk has written a part of a sector,
// which Open refuses as damage, and says so; and that everything else is there.
func TestRecover_TornRecord(t *testing.T) {
	r := newRuin(t, rand.New(rand.NewPCG(3, 4)), 60, 4, false)
	tried := 0
	for transactions := 20; transactions < 60; transactions++ {
		if transactions%10 == 1 {
			continue // it ends with two commits
		}
		before, torn := r.images[transactions-2], bytes.Clone(r.images[transactions-1])
		if len(before) != len(torn) || !bytes.Equal(before[:2*os.Getpagesize()],
			torn[:2*os.Getpagesize()]) {
			continue // it was a commit to the tables
		}
		at := 0
		for at < len(torn) && torn[at] == before[at] {
			at++
		}
		sector := at / 512 * 512
		copy(torn[sector+256:sector+512], before[sector+256:])
		r.must(os.WriteFile(r.path, torn, 0o600))
		if bytes.Equal(torn[sector:sector+512], r.images[transactions-1][sector:sector+512]) {
			continue // the rest of it was the same
		}
		tried++
		if err := lockd.Verify(r.path, nil); !errors.Is(err, lockd.ErrCorrupt) {
			t.Errorf("%d: verify: got %v, want ErrCorrupt", transactions, err)
		}
		var got, want bytes.Buffer
		found, err := lockd.Recover(r.path, &got, nil)
		r.must(err)
		r.must(os.WriteFile(r.path, before, 0o600))
		r.must(lockd.BackupFile(r.path, &want, nil))
		if !bytes.Equal(got.Bytes(), want.Bytes()) {
			t.Errorf("%d: it is not the state before", transactions)
		}
		if len(found.Missing) > 0 || len(found.Doubtful) != 1 ||
			!strings.Contains(found.Doubtful[0], "newest record") {
			t.Errorf("%d: got %+v", transactions, found)
		}
	}
	if tried < 5 {
		t.Errorf("tried %d times", tried)
	}
}

// Ensure that Recover finds the log, or says that it is missing, if the list of the tables says
// that a segment begins at another page. Without the rows of the log the file would look as it was
// when the log began.
func TestRecover_SegmentElsewhere(t *testing.T) {
	r := newRuin(t, rand.New(rand.NewPCG(5, 6)), 8, 1, false)
	intact := r.images[len(r.images)-1]
	pages := uint64(len(intact) / os.Getpagesize())
	moved := 0
	for _, name := range []string{"log0", "log1"} {
		for at := range intact {
			if !bytes.HasPrefix(intact[at:], []byte(name)) {
				continue
			}
			root := intact[at+len(name):][:8]
			if page := binary.NativeEndian.Uint64(root); page < 2 || page >= pages {
				continue // it is not in a list of the tables
			}
			for page := range pages + 1 {
				moved++
				content := bytes.Clone(intact)
				binary.NativeEndian.PutUint64(content[at+len(name):], page)
				what := fmt.Sprintf("%s at %d begins with page %d", name, at, page)
				backup, found := r.recovered(content, what)
				if len(found.Missing)+len(found.Doubtful) == 0 && r.taken(backup, what) {
					continue
				}
				r.check(backup, found, what)
			}
		}
	}
	if moved == 0 {
		t.Fatal("the file has no segment")
	}
}

// Ensure that Recover of a sound file writes the backup that BackupFile does, and says that nothing
// is missing; also of a file that it may only read.
func TestRecover_Sound(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, transactions := range []int{2, 60} {
		r := newRuin(t, random, transactions, 20, false)
		var want bytes.Buffer
		r.must(lockd.BackupFile(r.path, &want, nil))
		r.must(os.Chmod(r.path, 0o400))
		var got bytes.Buffer
		found, err := lockd.Recover(r.path, &got, nil)
		r.must(err)
		if len(found.Missing)+len(found.Doubtful) > 0 || !bytes.Equal(got.Bytes(), want.Bytes()) {
			t.Errorf("%d transactions: got %+v, and %d bytes, want %d", transactions, found,
				got.Len(), want.Len())
		}
	}
}

// Ensure that Recover refuses a file that is not lockd's, or is in use, with the reason, and writes
// nothing then; and that it returns the writer's error.
func TestRecover_Refuses(t *testing.T) {
	folder := t.TempDir()
	text := filepath.Join(folder, "text")
	empty := filepath.Join(folder, "empty")
	for path, content := range map[string]string{text: strings.Repeat("text ", 4000), empty: ""} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]error{
		text: lockd.ErrFormat, empty: lockd.ErrCorrupt, folder: lockd.ErrFormat,
		filepath.Join(folder, "none"): fs.ErrNotExist, "": lockd.ErrInvalid,
	} {
		var b bytes.Buffer
		found, err := lockd.Recover(path, &b, nil)
		if found != nil || !errors.Is(err, want) || b.Len() > 0 {
			t.Errorf("%q: got %v, want %v", path, err, want)
		}
	}
	path := filepath.Join(folder, "lockd.db")
	db, err := lockd.Open(path, &lockd.Options{Sync: lockd.SyncNever})
	if err != nil {
		t.Fatal(err)
	}
	_, err = lockd.Recover(path, io.Discard, &lockd.Options{OpenTimeout: 1})
	if !errors.Is(err, lockd.ErrInUse) {
		t.Errorf("of an open file: got %v, want ErrInUse", err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := lockd.Recover(path, failingWriter{}, nil); !errors.Is(err, errWrite) {
		t.Errorf("got %v, want the error of the writer", err)
	}
}
