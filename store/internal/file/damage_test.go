package file_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/store"
	"github.com/lockd/lockd/store/internal/format"
)

// Places in a page of bbolt.
const (
	headSize = 16
	metaSize = 64
)

// newestMeta returns where in a file the meta page of its last commit is, beyond the page's head.
func newestMeta(content []byte, pageSize int) int {
	commit := func(meta int) uint64 { return binary.NativeEndian.Uint64(content[meta+48:]) }
	if other := pageSize + headSize; commit(other) > commit(headSize) {
		return other
	}
	return headSize
}

// victim is a file to be damaged: its content, and the state that is in it.
type victim struct {
	content []byte
	want    whole
}

// whole is all that a store has, as bytes that can be compared.
type whole struct {
	index uint64
	rows  string
}

// large is a file of some hundred pages, with rows of every kind. It is made once.
var large = sync.OnceValues(func() (*victim, error) {
	folder, err := os.MkdirTemp("", "lockd-damage-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	path := folder + "/lockd.db"
	s := store.New()
	if err := s.Open(path, store.Options{NoSync: true}); err != nil {
		return nil, err
	}
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 12 {
		if err := write(s, func() { someRows(s, round, random) }); err != nil {
			return nil, err
		}
	}
	want := dump(s)
	if err := s.Close(); err != nil {
		return nil, err
	}
	content, err := os.ReadFile(path)
	return &victim{content, want}, err
})

// write commits what fn writes.
func write(s *store.Store, fn func()) error {
	fn()
	s.Seal()
	b := s.Take()
	if err := s.Write(b); err != nil {
		return err
	}
	s.Publish(b)
	return nil
}

// someRows writes rows of every kind, most of them new ones, and deletes some keys.
func someRows(s *store.Store, round int, random *rand.Rand) {
	index := s.Next()
	id := schema.ID{1, byte(round), 15: 1}
	node, name := fmt.Sprintf("node-%d", round%4), fmt.Sprintf("name-%02d", round)
	s.Nodes.Put(node, schema.Node{Name: node, Meta: map[string]string{"round": name},
		CreateIndex: 1, ModifyIndex: index})
	s.Services.Put(node+"\x00web", schema.Service{Node: node, ID: "web", Name: "web",
		Tags: []string{name}, CreateIndex: 1, ModifyIndex: index})
	s.Checks.Put(node+"\x00up", schema.Check{Node: node, ID: "up", Name: "up",
		ServiceID: "web", Output: strings.Repeat(name, 100), ModifyIndex: index})
	s.Sessions.Put(string(id[:]), schema.Session{ID: id, Node: node, Name: name,
		TTL: time.Minute, LockDelay: time.Second, Checks: []string{"up"}, CreateIndex: index})
	for i := range 40 {
		key := fmt.Sprintf("key/%03d", random.IntN(1000))
		row := schema.Key{Key: key, Value: make([]byte, random.IntN(1500)), Flags: uint64(i),
			CreateIndex: index, ModifyIndex: index}
		for j := range row.Value {
			row.Value[j] = byte(random.Uint32())
		}
		if i%8 == 0 {
			row.Session, row.LockIndex, row.Fence = id, 1, index
		}
		s.Keys.Put(key, row)
	}
	s.Keys.Put("large", schema.Key{Key: "large", Value: make([]byte, 10_000+round*500),
		CreateIndex: 2, ModifyIndex: index})
	for range 10 {
		key := fmt.Sprintf("key/%03d", random.IntN(1000))
		if s.Keys.Newest(key) != nil {
			s.Keys.Delete(key)
		}
		s.Bury(0, key)
	}
	for i := range 20 {
		key := fmt.Sprintf("delayed/%d/%d", round, i)
		s.Delays.Put(key, schema.Delay{Key: key, Until: time.Unix(int64(i), 0).UTC(), Length: 1,
			Index: index})
		s.Attachments.Put(key, schema.Attachment{Name: key, Session: id, Value: []byte(key),
			CreateIndex: index, ModifyIndex: index})
	}
	s.Marks.Put("catalog", schema.Mark{Name: "catalog", Index: index})
}

// dump returns all that the store has.
func dump(s *store.Store) whole {
	snapshot := s.Snapshot()
	b := make([]byte, 0, 1<<19)
	b = dumpTable(b, &format.KeyRows, snapshot.Keys.Ascend(""))
	b = dumpTable(b, &format.SessionRows, snapshot.Sessions.Ascend(""))
	b = dumpTable(b, &format.NodeRows, snapshot.Nodes.Ascend(""))
	b = dumpTable(b, &format.ServiceRows, snapshot.Services.Ascend(""))
	b = dumpTable(b, &format.CheckRows, snapshot.Checks.Ascend(""))
	b = dumpTable(b, &format.AttachmentRows, snapshot.Attachments.Ascend(""))
	b = dumpTable(b, &format.DelayRows, snapshot.Delays.Ascend(""))
	b = dumpTable(b, &format.GraveRows, snapshot.Graves.Ascend(""))
	b = dumpTable(b, &format.MarkRows, snapshot.Marks.Ascend(""))
	return whole{snapshot.Index(), string(b)}
}

func dumpTable[T any](b []byte, codec *format.Rows[T], rows iter.Seq2[string, *T]) []byte {
	for key, row := range rows {
		b = fmt.Appendf(b, "%d %q ", codec.Table, key)
		b = append(codec.Append(b, key, row), '\n')
	}
	return b
}

// bench is a file that is damaged in many ways, one after the other.
type bench struct {
	t       *testing.T
	path    string
	page    int
	intact  []byte
	refused int
	read    int
}

func newBench(t *testing.T, intact []byte) *bench {
	t.Helper()
	b := &bench{t: t, path: newPath(t), page: os.Getpagesize(), intact: intact}
	if err := os.WriteFile(b.path, intact, 0o600); err != nil {
		t.Fatal(err)
	}
	return b
}

func newLarge(t *testing.T) (*bench, *victim) {
	t.Helper()
	t.Parallel()
	v, err := large()
	if err != nil {
		t.Fatal(err)
	}
	return newBench(t, v.content), v
}

// step is the step of a loop over many like cases. Under the race detector a few of them are
// enough: opening a file is the work of one goroutine.
func step() int {
	if raced || testing.Short() {
		return 13
	}
	return 1
}

// pages is how many pages the file has.
func (b *bench) pages() int { return len(b.intact) / b.page }

// at returns a copy of a page.
func (b *bench) at(page int) []byte {
	return bytes.Clone(b.intact[page*b.page : (page+1)*b.page])
}

// damaged opens the file with other bytes at the offset, and makes it whole again.
func (b *bench) damaged(what string, offset int, content []byte, allowed ...whole) {
	b.t.Helper()
	overwrite(b.t, b.path, int64(offset), string(content))
	b.check(what, allowed...)
	overwrite(b.t, b.path, int64(offset), string(b.intact[offset:offset+len(content)]))
}

// check opens the file, which must give one of the states or be refused, and must not change.
func (b *bench) check(what string, allowed ...whole) {
	b.t.Helper()
	long := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	if err := os.Chtimes(b.path, long, long); err != nil {
		b.t.Fatal(err)
	}
	before, err := os.Stat(b.path)
	if err != nil {
		b.t.Fatal(err)
	}
	got, err := openStore(b.path)
	switch {
	case errors.Is(err, store.ErrCorrupt), errors.Is(err, store.ErrFormat):
		b.refused++
	case err != nil:
		b.t.Errorf("%s: got %v", what, err)
	case !slices.Contains(allowed, got):
		b.t.Errorf("%s: a wrong state was read, of index %d", what, got.index)
	default:
		b.read++
	}
	after, err := os.Stat(b.path)
	if err != nil {
		b.t.Fatal(err)
	}
	if !after.ModTime().Equal(before.ModTime()) || after.Size() != before.Size() {
		b.t.Errorf("%s: the file was written to", what)
	}
}

// openStore opens the file and returns what it has.
func openStore(path string) (whole, error) {
	s := store.New()
	if err := s.Open(path, store.Options{NoSync: true}); err != nil {
		return whole{}, err
	}
	got := dump(s)
	return got, s.Close()
}

// openCopy returns what is in a file while a store has it open: it reads a copy.
func openCopy(t *testing.T, path string) (whole, error) {
	t.Helper()
	path = copyOf(t, path)
	defer os.Remove(path)
	return openStore(path)
}

func TestDamage_None(t *testing.T) {
	b, v := newLarge(t)
	b.check("as it was", v.want)
	if b.read != 1 || b.pages() < 200 {
		t.Errorf("%d pages, read %d times", b.pages(), b.read)
	}
}

// Ensure that a file that was cut off is refused, wherever it was cut.
func TestDamage_Cut(t *testing.T) {
	b, v := newLarge(t)
	used := 0 // the end of the pages in use
	for page := range b.pages() {
		if binary.NativeEndian.Uint64(b.at(page)) == uint64(page) {
			used = (page + 1) * b.page
		}
	}
	for size := len(b.intact) - 1; size >= 0; size-- {
		switch size % b.page {
		case 0, 1, headSize - 1, headSize, headSize + metaSize - 1, b.page / 2, b.page - 1:
		default:
			continue
		}
		if err := os.Truncate(b.path, int64(size)); err != nil {
			t.Fatal(err)
		}
		refused := b.refused
		b.check(fmt.Sprintf("cut to %d bytes", size), v.want)
		if size < used && refused == b.refused {
			t.Errorf("cut to %d bytes of %d: it was accepted", size, used)
		}
	}
}

// Ensure that a file with one page overwritten is refused, or read as it was.
func TestDamage_Page(t *testing.T) {
	b, v := newLarge(t)
	random := rand.New(rand.NewPCG(3, 4))
	noise := make([]byte, b.page)
	for page := 0; page < b.pages(); page += step() {
		for i := range noise {
			noise[i] = byte(random.Uint32())
		}
		other := random.IntN(b.pages())
		half := append(b.at(page)[:b.page/2], noise[b.page/2:]...)
		for _, damage := range []struct {
			name    string
			content []byte
		}{
			{"zeros", make([]byte, b.page)},
			{"noise", noise},
			{"half of noise", half},
			{"the page after it", b.at((page + 1) % b.pages())},
			{"another page", b.at(other)},
			{"a meta page", b.at(page & 1)},
		} {
			b.damaged(fmt.Sprintf("page %d: %s", page, damage.name), page*b.page, damage.content,
				v.want)
		}
	}
	if b.refused < b.pages()/step() || b.read == 0 {
		t.Errorf("%d times refused, %d times read", b.refused, b.read)
	}
}

// Ensure that no bit of a meta page can flip so that an older state is taken for the last one.
func TestDamage_MetaBits(t *testing.T) {
	b, v := newLarge(t)
	for page := range 2 {
		for bit := 0; bit < 8*(headSize+metaSize); bit += step() {
			flipped := b.at(page)
			flipped[bit/8] ^= 1 << (bit % 8)
			b.damaged(fmt.Sprintf("meta page %d, bit %d", page, bit), page*b.page, flipped, v.want)
		}
	}
	for at := 2 * b.page; at < len(b.intact); at += 2039 * step() { // and some bits of all others
		flipped := []byte{b.intact[at] ^ 1<<(at%8)}
		b.damaged(fmt.Sprintf("byte %d", at), at, flipped, v.want)
	}
}

// Ensure that no bit of a page's head or elements can flip so that rows are lost.
func TestDamage_HeadBits(t *testing.T) {
	b, v := newLarge(t)
	for page := 2; page < b.pages(); page += 23 {
		for bit := page % 3; bit < 8*48; bit += 3 * step() { // of the head and two elements
			at := page*b.page + bit/8
			flipped := []byte{b.intact[at] ^ 1<<(bit%8)}
			b.damaged(fmt.Sprintf("page %d, bit %d", page, bit), at, flipped, v.want)
		}
	}
}

func TestDamage_MetaSwapped(t *testing.T) {
	b, v := newLarge(t)
	swapped := append(b.at(1), b.at(0)...)
	b.damaged("meta pages swapped", 0, swapped, v.want)
	binary.NativeEndian.PutUint64(swapped, 0)
	binary.NativeEndian.PutUint64(swapped[b.page:], 1)
	b.damaged("meta pages swapped with their numbers", 0, swapped, v.want)
	for page := range 2 {
		b.damaged("twice the same meta page", page*b.page, b.at(1-page), v.want)
	}
}

// Ensure that branches that lead back to themselves end in a refusal, not in a hang.
func TestDamage_BranchLoop(t *testing.T) {
	b, v := newLarge(t)
	branches := 0
	for page := 2; page < b.pages(); page++ {
		content := b.at(page)
		if binary.NativeEndian.Uint16(content[8:]) != 1 ||
			binary.NativeEndian.Uint64(content) != uint64(page) {
			continue
		}
		branches++
		count := int(binary.NativeEndian.Uint16(content[10:]))
		for i := 0; i < count; i += step() {
			looped := bytes.Clone(content)
			binary.NativeEndian.PutUint64(looped[headSize+16*i+8:], uint64(page))
			b.damaged(fmt.Sprintf("branch %d, child %d is itself", page, i), page*b.page, looped,
				v.want)
		}
	}
	if branches == 0 {
		t.Error("the file has no branches")
	}
}

// Ensure that a branch is refused if it leads to a page by another key than the page's first key.
// With a smaller key all rows can be found, but bbolt's next commit would not find the entry that
// it has to replace, and would use pages twice.
func TestDamage_BranchKey(t *testing.T) {
	b, v := newLarge(t)
	tried := 0
	for page := 2; page < b.pages(); page++ {
		content := b.at(page)
		if order.Uint16(content[8:]) != 1 || order.Uint64(content) != uint64(page) {
			continue
		}
		refused := b.refused
		b.damaged("zeros", page*b.page, make([]byte, b.page), v.want)
		if b.refused == refused {
			continue // the page is not in use
		}
		for i := 0; i < int(order.Uint16(content[10:])); i += step() {
			at := headSize + 16*i
			key, size := at+int(order.Uint32(content[at:])), int(order.Uint32(content[at+4:]))
			for bit := range 8 * size {
				flipped := []byte{content[key+bit/8] ^ 1<<(bit%8)}
				b.damaged(fmt.Sprintf("branch %d, key %d, bit %d", page, i, bit),
					page*b.page+key+bit/8, flipped) // no state is allowed
				tried++
			}
		}
	}
	if tried == 0 {
		t.Error("the file has no branches")
	}
}

// Ensure that a crash at any moment of a commit leaves the state before the commit or after it, in
// a file that can be written to.
func TestDamage_StepsOfACommit(t *testing.T) {
	_, v := newLarge(t)
	random := rand.New(rand.NewPCG(5, 6))
	for round := range max(1, 4/step()) {
		b := newBench(t, v.content)
		path := newPath(t)
		if err := os.WriteFile(path, v.content, 0o600); err != nil {
			t.Fatal(err)
		}
		after := commitTo(t, path, round)
		content := []byte(stateOf(t, path).bytes)
		testSteps(t, b, v.want, after, content, random)
		v = &victim{content, after} // so that the other meta page has its turn
	}
}

// commitTo opens the file, commits to it, and returns the state then.
func commitTo(t *testing.T, path string, round int) whole {
	t.Helper()
	s := store.New()
	if err := s.Open(path, store.Options{NoSync: true}); err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(7, uint64(round)))
	if err := write(s, func() { someRows(s, 20+round, random) }); err != nil {
		t.Fatal(err)
	}
	got := dump(s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return got
}

// testSteps writes to the file what a commit has written, page by page, and the meta page last.
func testSteps(
	t *testing.T, b *bench, before, after whole, content []byte, random *rand.Rand,
) {
	t.Helper()
	var data []int
	meta := -1
	grown := append(bytes.Clone(b.intact), make([]byte, len(content)-len(b.intact))...)
	for page := range len(content) / b.page {
		start := page * b.page
		switch {
		case bytes.Equal(content[start:start+b.page], grown[start:start+b.page]):
		case page < 2:
			meta = page
		default:
			data = append(data, page)
		}
	}
	if meta < 0 || len(data) < 5 {
		t.Fatalf("the commit has written the pages %d and %d", data, meta)
	}
	refused := b.refused
	if err := os.Truncate(b.path, int64(len(content))); err != nil {
		t.Fatal(err)
	}
	b.check("longer", before)
	random.Shuffle(len(data), func(i, j int) { data[i], data[j] = data[j], data[i] })
	for _, page := range data {
		start := page * b.page
		overwrite(t, b.path, int64(start), string(content[start:start+b.page/2]))
		b.check(fmt.Sprintf("half of page %d written", page), before)
		overwrite(t, b.path, int64(start), string(content[start:start+b.page]))
		b.check(fmt.Sprintf("page %d written", page), before)
	}
	for at := headSize; at < headSize+metaSize; at += 8 {
		start := meta*b.page + at
		overwrite(t, b.path, int64(start), string(content[start:start+8]))
		if at+8 < headSize+metaSize {
			b.check(fmt.Sprintf("%d bytes of the meta page written", at+8), before)
		}
		if at == headSize+32 { // in the middle: what a crash left can be written to
			testRevival(t, b.path)
		}
	}
	b.check("all written", after)
	if b.refused != refused {
		t.Errorf("a crash made the file useless %d times", b.refused-refused)
	}
}

// testRevival commits to a copy of the file, and reads it again.
func testRevival(t *testing.T, path string) {
	t.Helper()
	again := newPath(t)
	if err := os.WriteFile(again, []byte(stateOf(t, path).bytes), 0o600); err != nil {
		t.Fatal(err)
	}
	want := commitTo(t, again, 99)
	if got, err := openStore(again); err != nil || got != want {
		t.Errorf("after a commit to what a crash left: got index %d, %v, want %d", got.index, err,
			want.index)
	}
}
