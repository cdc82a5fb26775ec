package file_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/store"
	"github.com/lockd/lockd/store/internal/file"
	"github.com/lockd/lockd/store/internal/format"
)

// rescue is a file with keys of which it has no older copies, and one small table: what Recover
// saves of it can be told to the row.
type rescue struct {
	t       *testing.T
	path    string
	page    int
	content []byte
	keys    map[string]string // values by key
}

// lastOfRescue is the last index of a rescue. Its rows have lower ones.
const lastOfRescue = 5000

func newRescue(t *testing.T, pageSize int) *rescue {
	t.Helper()
	r := &rescue{t: t, path: newPath(t), page: pageSize, keys: make(map[string]string)}
	inBolt(t, r.path, &bbolt.Options{PageSize: pageSize, NoSync: true}, func(tx *bbolt.Tx) error {
		return file.MakeTables(tx)
	})
	inBolt(t, r.path, nil, func(tx *bbolt.Tx) error {
		return putHeader(tx, file.HeaderValue(1, uint64(tx.ID()), 1))
	})
	s := store.New()
	r.must(s.Open(r.path, store.Options{NoSync: true}))
	s.Raise(lastOfRescue - 1)
	r.must(write(s, func() {
		for i := range 600 {
			key := fmt.Sprintf("key/%03d", i)
			r.keys[key] = fmt.Sprintf("value of %0*d", pageSize/80, i)
			if i%200 == 100 { // this row takes more pages than one
				r.keys[key] += strings.Repeat("L", 2*pageSize)
			}
			s.Keys.Put(key, schema.Key{Key: key, Value: []byte(r.keys[key]), ModifyIndex: 2})
		}
		s.Nodes.Put("node", schema.Node{Name: "node", ModifyIndex: lastOfRescue - 1})
	}))
	r.must(s.Close())
	r.content = contentOf(t, r.path)
	return r
}

func (r *rescue) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// of recovers a file with that content.
func (r *rescue) of(content []byte) *file.Recovered {
	r.t.Helper()
	return recoverContent(r.t, r.path, content)
}

// recoverContent gives the file at the path that content, and recovers it.
func recoverContent(t *testing.T, path string, content []byte) *file.Recovered {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	found, err := file.Recover(path, file.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// wants checks that all keys are there in order, except the lost ones.
func (r *rescue) wants(what string, found *file.Recovered, lost ...string) {
	r.t.Helper()
	want := slices.DeleteFunc(slices.Sorted(maps.Keys(r.keys)), func(key string) bool {
		return slices.Contains(lost, key)
	})
	var got []string
	for _, row := range found.Keys {
		got = append(got, row.Key)
		if string(row.Value) != r.keys[row.Key] {
			r.t.Errorf("%s: %s has the value %q", what, row.Key, row.Value)
		}
	}
	if !slices.Equal(got, want) {
		r.t.Errorf("%s: got %d keys, want %d in order", what, len(got), len(want))
	}
}

// told reports whether one of the remarks begins with the text, and is about the table and the key.
func told(remarks []file.Remark, table, key, text string) bool {
	return slices.ContainsFunc(remarks, func(r file.Remark) bool {
		return r.Table == table && r.Key == key && strings.HasPrefix(r.Text, text)
	})
}

// treePages returns the numbers of the pages that are of trees.
func (r *rescue) treePages() (numbers []int) {
	for at := 2 * r.page; at < len(r.content); at += r.page {
		number, kind := at/r.page, order.Uint16(r.content[at+8:])
		ofTree := kind == branchKind || kind == leafKind
		if ofTree && order.Uint64(r.content[at:]) == uint64(number) {
			numbers = append(numbers, number)
		}
	}
	return numbers
}

// root returns the page with the list of the tables.
func (r *rescue) root() int {
	return int(binary.NativeEndian.Uint64(r.content[newestMeta(r.content, r.page)+16:]))
}

// end returns where the page ends, with the pages that belong to it.
func (r *rescue) end(page int) int {
	more := int(binary.NativeEndian.Uint32(r.content[page*r.page+12:]))
	return (page + 1 + more) * r.page
}

// keysOn returns the keys whose rows are on the page.
func (r *rescue) keysOn(page int) (keys []string) {
	content := r.content[page*r.page : r.end(page)]
	if binary.NativeEndian.Uint16(content[8:]) != leafKind {
		return nil
	}
	for key, value := range r.keys {
		if bytes.Contains(content, []byte(key)) && bytes.Contains(content, []byte(value)) {
			keys = append(keys, key)
		}
	}
	return slices.Sorted(slices.Values(keys))
}

// Ensure that Recover of a file without a whole meta page finds all rows by their pages, in order,
// whatever size the pages have; and says that they may be older, and that the last index is only
// the highest that was seen.
func TestRecover_NoMetaPage(t *testing.T) {
	for _, pageSize := range []int{1 << 10, 1 << 12, 1 << 13, 1 << 16} {
		r := newRescue(t, pageSize)
		content := bytes.Clone(r.content)
		clear(content[:2*pageSize])
		found := r.of(content)
		what := fmt.Sprintf("pages of %d", pageSize)
		r.wants(what, found)
		if len(found.Nodes) != 1 || found.Index != lastOfRescue-1 {
			t.Errorf("%s: got %d nodes, index %d", what, len(found.Nodes), found.Index)
		}
		for key := range r.keys {
			if !told(found.Doubtful, "keys", key, "it is of a page that no table leads to") {
				t.Errorf("%s: nothing is said of %s", what, key)
			}
		}
		if !told(found.Missing, "", "", "neither of the two meta pages is whole") ||
			!told(found.Doubtful, "", "", "the header cannot be read") {
			t.Errorf("%s: got %+v", what, found.Missing)
		}
	}
}

// Ensure that the loss of a page loses the rows that were on it, and no others, also if other pages
// are reached through it; and that Recover says so.
func TestRecover_PageLost(t *testing.T) {
	r := newRescue(t, os.Getpagesize())
	leaves, others := 0, 0
	for _, page := range r.treePages() {
		content := bytes.Clone(r.content)
		clear(content[page*r.page : (page+1)*r.page])
		found, lost := r.of(content), r.keysOn(page)
		what := fmt.Sprintf("page %d", page)
		r.wants(what, found, lost...)
		switch {
		case len(lost) > 0:
			leaves++
			// The first leaf is reached by its first key, and all others are bounded too.
			if !told(found.Missing, "keys", "", fmt.Sprintf("rows from %q to ", lost[0])) ||
				len(found.Missing) != 1 || len(found.Doubtful) != 0 || len(found.Nodes) != 1 ||
				found.Index != lastOfRescue {
				t.Errorf("%s: index %d, missing %+v, doubtful %+v", what, found.Index,
					found.Missing, found.Doubtful)
			}
		case len(found.Missing) > 0: // it is a branch, or the list of the tables
			others++
			if len(found.Doubtful) < len(r.keys) {
				t.Errorf("%s: %d keys are doubtful", what, len(found.Doubtful))
			}
			if page == r.root() && (len(found.Missing) != 1+int(format.TableCount) ||
				!told(found.Missing, "", "", "the list of the tables is damaged") ||
				!told(found.Missing, "nodes", "", "the table is not in the list")) {
				t.Errorf("%s: missing %+v", what, found.Missing)
			}
		}
	}
	if leaves < 5 || others < 2 {
		t.Errorf("%d leaves and %d other pages", leaves, others)
	}
}

// Ensure that a damaged element of a page costs its row only, that the other rows of the page are
// sure, and that Recover names the keys among which the lost row was.
func TestRecover_ElementDamaged(t *testing.T) {
	r := newRescue(t, os.Getpagesize())
	var leaves [][]string
	first := make(map[string]int) // pages by their first key
	for _, page := range r.treePages() {
		if keys := r.keysOn(page); len(keys) > 0 {
			leaves = append(leaves, keys)
			first[keys[0]] = page
		}
	}
	slices.SortFunc(leaves, slices.Compare)
	const keySize = headSize + 8 // where it is in the first element of a page
	for i, keys := range leaves {
		element := len(keys) / 2
		content := bytes.Clone(r.content)
		content[first[keys[0]]*r.page+keySize+element*leafElement] ^= 1
		found := r.of(content)
		r.wants(keys[element], found, keys[element])
		text := fmt.Sprintf("rows from %q to the last may be missing: page ", keys[0])
		if i+1 < len(leaves) {
			text = fmt.Sprintf("rows from %q to before %q may be missing: page ", keys[0],
				leaves[i+1][0])
		}
		if len(found.Missing) != 1 || !told(found.Missing, "keys", "", text) ||
			len(found.Doubtful) != 0 {
			t.Errorf("want %q, missing %+v, doubtful %+v", text, found.Missing, found.Doubtful)
		}
	}
	if len(leaves) < 5 {
		t.Errorf("%d leaves", len(leaves))
	}

	// A small table is in the list of the tables.
	const name, bucketHead = "nodes", 16
	content := bytes.Clone(r.content)
	root := content[r.root()*r.page:]
	root[bytes.Index(root, []byte(name))+len(name)+bucketHead+keySize] ^= 1
	found := r.of(content)
	r.wants("other table", found)
	if len(found.Missing) != 1 || len(found.Doubtful) != 0 || len(found.Nodes) != 0 ||
		!told(found.Missing, name, "", "rows from the first to the last may be missing: page ") {
		t.Errorf("missing %+v, doubtful %+v", found.Missing, found.Doubtful)
	}
}

// Ensure that one bit of the head of a page, or of its first element, loses no more than one row:
// all other rows of the page, and those of all other pages, are saved. The bit may say that other
// pages belong to the page. Only if it takes a page's own pages away, their rows are lost too.
func TestRecover_PageHeadBits(t *testing.T) {
	r := newRescue(t, os.Getpagesize())
	pages := r.treePages()
	for at := 0; at < len(pages); at += 4 {
		page := pages[at]
		for bit := 0; bit < 8*2*headSize; bit += min(step(), 4) {
			content := bytes.Clone(r.content)
			content[page*r.page+bit/8] ^= 1 << (bit % 8)
			found := r.of(content)
			what := fmt.Sprintf("page %d, bit %d", page, bit)
			lost := r.keysOn(page)
			for _, row := range found.Keys {
				lost = slices.DeleteFunc(lost, func(key string) bool { return key == row.Key })
			}
			single := r.end(page) == (page+1)*r.page
			if len(lost) > 1 && single || len(lost) > 0 && len(found.Missing) == 0 {
				t.Errorf("%s: %q are lost, missing %+v", what, lost, found.Missing)
			}
			r.wants(what, found, lost...)
		}
	}
}

// Ensure that all rows are saved if a branch leads to itself, or twice to one page: the pages that
// no branch leads to any more are found all the same.
func TestRecover_BranchLeadsAstray(t *testing.T) {
	r := newRescue(t, os.Getpagesize())
	order, branches := binary.NativeEndian, 0
	for _, page := range r.treePages() {
		head := r.content[page*r.page:]
		if order.Uint16(head[8:]) != branchKind {
			continue
		}
		branches++
		child := func(i int) int { return page*r.page + headSize + 16*i + 8 }
		for i := 1; i < int(order.Uint16(head[10:])); i++ {
			neighbour := order.Uint64(r.content[child(i-1):])
			for _, to := range []uint64{uint64(page), neighbour, 0, 1 << 40} {
				content := bytes.Clone(r.content)
				order.PutUint64(content[child(i):], to)
				found := r.of(content)
				what := fmt.Sprintf("child %d of page %d is page %d", i, page, to)
				r.wants(what, found)
				if len(found.Missing) != 1 || len(found.Doubtful) == 0 {
					t.Errorf("%s: missing %+v, %d doubtful", what, found.Missing,
						len(found.Doubtful))
				}
			}
		}
	}
	if branches == 0 {
		t.Error("the file has no branches")
	}
}

// Ensure that a row of an index that no commit has does not become the last index: Restore would
// refuse the backup.
func TestRecover_G4_IndexOfNoCommit(t *testing.T) {
	s := store.New()
	for key, index := range map[string]uint64{"limit": 1 << 63, "most": math.MaxUint64} {
		s.Keys.Put(key, schema.Key{Key: key, ModifyIndex: index})
	}
	s.Seal()
	s.PublishMemory()
	path := newPath(t)
	if err := store.Create(path, s.Snapshot(), quick); err != nil {
		t.Fatal(err)
	}
	found, err := file.Recover(path, file.Options{})
	if err != nil || found.Index != s.Published() || len(found.Keys) != 2 {
		t.Errorf("got %+v, %v, want index %d", found, err, s.Published())
	}
}

// Ensure that a damaged row is missing by its name, and that an older copy of it, in a page that is
// not in use any more, is saved as doubtful, wherever the row is on its page. Its neighbours are as
// they were; rows that were deleted do not come back.
func TestRecover_OlderCopy(t *testing.T) {
	path := newPath(t)
	s := store.New()
	o := store.Options{NoSync: true}
	if err := s.Open(path, o); err != nil {
		t.Fatal(err)
	}
	put := func(values ...string) { // commits to the tables: there is no log yet
		t.Helper()
		err := write(s, func() {
			for i, value := range values {
				key := string(rune('a' + i))
				if value == "" {
					s.Keys.Delete(key)
					continue
				}
				s.Keys.Put(key, schema.Key{Key: key, ModifyIndex: s.Next(),
					Value: bytes.Repeat([]byte(value), os.Getpagesize()/8)})
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	put("oldA", "oldB", "oldC", "oldD", "oldE", "oldF", "oldG", "oldH", "oldI")
	put("newA", "newB", "newC", "", "newE", "newF", "newG", "newH", "")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	content := contentOf(t, path)
	for _, key := range []string{"a", "b", "f", "g"} {
		name := strings.ToUpper(key)
		damaged := bytes.Replace(content, []byte("new"+name), []byte("New"+name), 1)
		found := recoverContent(t, path, damaged)
		got := ""
		for _, row := range found.Keys {
			got += fmt.Sprintf("%.4s ", row.Value)
		}
		want := strings.Replace("newA newB newC newE newF newG newH ", "new"+name, "old"+name, 1)
		if got != want {
			t.Errorf("%s: got %s", key, got)
		}
		if len(found.Missing) != 1 || len(found.Doubtful) != 1 ||
			!told(found.Missing, "keys", key, "its checksum does not match") ||
			!told(found.Doubtful, "keys", key, "it is of a page that no table leads to") {
			t.Errorf("%s: missing %+v, doubtful %+v", key, found.Missing, found.Doubtful)
		}
	}
}

// Ensure that of several older copies of a damaged row the newest is saved, in whatever order they
// come, and that no copy takes the place of a row that is sound, not even a newer one: its commit
// may never have been whole.
func TestRecover_NewestOlderCopy(t *testing.T) {
	s := store.New()
	var pages [4][]byte // one page each, with all keys, as they were at some time
	var content []byte
	for i := range pages {
		for _, key := range []string{"a", "b", "c", "d"} {
			value := bytes.Repeat(fmt.Appendf(nil, "%d%s", i, key), os.Getpagesize()/10)
			s.Keys.Put(key, schema.Key{Key: key, Value: value, ModifyIndex: s.Next()})
		}
		s.Seal()
		s.PublishMemory()
		path := newPath(t)
		if err := store.Create(path, s.Snapshot(), quick); err != nil {
			t.Fatal(err)
		}
		whole := contentOf(t, path)
		page := bytes.Index(whole, fmt.Appendf(nil, "%dc", i)) / os.Getpagesize()
		pages[i] = whole[page*os.Getpagesize():][:os.Getpagesize()]
		if i == 2 {
			content = whole
		}
	}
	content = bytes.Replace(content, []byte("2c"), []byte("?c"), 1)
	for _, test := range []struct {
		copies []int
		want   string
	}{
		{[]int{0, 1}, "2a 2b 1c 2d "},
		{[]int{1, 0}, "2a 2b 1c 2d "},
		{[]int{3}, "2a 2b 3c 2d "},
	} {
		damaged := bytes.Clone(content)
		for _, i := range test.copies {
			damaged = append(damaged, pages[i]...)
		}
		found := recoverContent(t, newPath(t), damaged)
		got := ""
		for _, row := range found.Keys {
			got += fmt.Sprintf("%.2s ", row.Value)
		}
		if got != test.want || len(found.Doubtful) != 1 ||
			!told(found.Doubtful, "keys", "c", "it is of a page that no table leads to") {
			t.Errorf("copies %d: got %s, doubtful %+v", test.copies, got, found.Doubtful)
		}
	}
}

// Ensure that a page that the disk has written in place of another one costs the rows of that one
// only: the rows of the page are sure, as they are also where they should be.
func TestRecover_PageInPlaceOfAnother(t *testing.T) {
	r := newRescue(t, os.Getpagesize())
	var leaves []int
	for _, page := range r.treePages() {
		if len(r.keysOn(page)) > 0 && r.end(page) == (page+1)*r.page {
			leaves = append(leaves, page)
		}
	}
	for i, page := range leaves[1:] {
		for _, moved := range [][2]int{{page, leaves[i]}, {leaves[i], page}} {
			content := bytes.Clone(r.content)
			copy(content[moved[1]*r.page:(moved[1]+1)*r.page], r.content[moved[0]*r.page:])
			order.PutUint64(content[moved[1]*r.page:], uint64(moved[1]))
			found := r.of(content)
			what := fmt.Sprintf("page %d in place of %d", moved[0], moved[1])
			r.wants(what, found, r.keysOn(moved[1])...)
			if len(found.Missing) != 1 || len(found.Doubtful) != 0 {
				t.Errorf("%s: missing %+v, doubtful %+v", what, found.Missing, found.Doubtful)
			}
		}
	}
	if len(leaves) < 5 {
		t.Errorf("%d leaves", len(leaves))
	}
}

// Ensure that rows of a page that is sound, but is an older one of other keys, because the disk
// has lost the last write to it, take the place of no row that is where it should be; and that they
// are doubtful, as are those below such a page.
func TestRecover_OlderPageOfOtherKeys(t *testing.T) {
	for _, kind := range []uint16{leafKind, branchKind} {
		olderPageOfOtherKeys(t, kind)
	}
}

func olderPageOfOtherKeys(t *testing.T, kind uint16) {
	t.Helper()
	const page, keys, deleted = 1 << 10, 3000, 2000 // so small pages have branches below branches
	path := newPath(t)
	inBolt(t, path, &bbolt.Options{PageSize: page, NoSync: true}, func(tx *bbolt.Tx) error {
		return errors.Join(file.MakeTables(tx), putHeader(tx, file.HeaderValue(1, 2, 1)))
	})
	s := store.New()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(s.Open(path, store.Options{NoSync: true}))
	key := func(i int) string { return fmt.Sprintf("key/%04d", i) }
	put := func(value string) []byte {
		must(write(s, func() {
			for i := range keys {
				if value == "newer" && i == deleted {
					s.Keys.Delete(key(i))
					continue
				}
				s.Keys.Put(key(i), schema.Key{Key: key(i), Value: bytes.Repeat([]byte(value), 20),
					ModifyIndex: s.Next()})
			}
		}))
		return contentOf(t, path)
	}
	older, content := put("older"), put("newer")
	must(s.Close())
	pageWith := func(content, before []byte, texts ...string) int { // written since
		for at := 2 * page; at < len(content); at += page {
			one := content[at : at+page]
			if at < len(before) && bytes.Equal(one, before[at:at+page]) {
				continue
			}
			without := func(text string) bool { return !bytes.Contains(one, []byte(text)) }
			if order.Uint64(one) == uint64(at/page) && order.Uint16(one[8:]) == kind &&
				!slices.ContainsFunc(texts, without) {
				return at
			}
		}
		t.Fatalf("no page of kind %d has %q", kind, texts)
		return 0
	}
	texts := map[uint16][2][]string{
		leafKind:   {{"newer", "key/1000"}, {"older", "key/2000"}},
		branchKind: {{"key/100", "key/101"}, {"key/200", "key/201"}},
	}[kind]
	lost := pageWith(content, older, texts[0]...)
	stale := pageWith(older, nil, texts[1]...)
	copy(content[lost:lost+page], older[stale:])
	order.PutUint64(content[lost:], uint64(lost/page))
	found := recoverContent(t, path, content)
	doubtful := 0
	for _, row := range found.Keys {
		newer := bytes.HasPrefix(row.Value, []byte("newer"))
		told := told(found.Doubtful, "keys", row.Key, "it is of a page that ")
		if !newer && !told {
			t.Errorf("kind %d: %s is an older one", kind, row.Key)
		}
		if told {
			doubtful++
		}
	}
	if doubtful == 0 || doubtful > keys/2 || len(found.Missing) != 1 {
		t.Errorf("kind %d: %d rows are doubtful, missing %+v", kind, doubtful, found.Missing)
	}
}

// Ensure that Recover reports a row that is sound, and is not what the last commit left: only the
// tally tells that the disk has lost a write.
func TestRecover_LostWriteIsTold(t *testing.T) {
	r := newRescue(t, os.Getpagesize())
	const key = "key/007"
	value := func(text string) []byte {
		row := schema.Key{Key: key, Value: []byte(text), ModifyIndex: 2}
		return format.KeyRows.Append(nil, key, &row)
	}
	if found := r.of(r.content); len(found.Missing)+len(found.Doubtful) != 0 {
		t.Errorf("of the whole file: missing %+v, doubtful %+v", found.Missing, found.Doubtful)
	}
	newer := value(r.keys[key])
	r.keys[key] = strings.Replace(r.keys[key], "value", "older", 1)
	found := r.of(bytes.Replace(r.content, newer, value(r.keys[key]), 1))
	r.wants("lost write", found)
	if len(found.Missing) != 0 || len(found.Doubtful) != 1 ||
		!strings.HasSuffix(found.Doubtful[0].Text, "or have been deleted") ||
		!strings.Contains(found.Doubtful[0].Text, "the disk has lost a write") {
		t.Errorf("missing %+v, doubtful %+v", found.Missing, found.Doubtful)
	}
}

// Ensure that Recover says that a meta page is damaged, which may have been the last commit's.
func TestRecover_MetaPageDamaged(t *testing.T) {
	r := newRescue(t, os.Getpagesize())
	for page := range 2 {
		content := bytes.Clone(r.content)
		content[page*r.page+headSize+20] ^= 1
		found := r.of(content)
		if !told(found.Doubtful, "", "", fmt.Sprintf("meta page %d is damaged", page)) {
			t.Errorf("page %d: got %+v", page, found.Doubtful)
		}
		if newestMeta(r.content, r.page) != page*r.page+headSize { // it was the older one
			r.wants("older meta page", found)
			if len(found.Missing) != 0 || len(found.Doubtful) != 1 {
				t.Errorf("missing %+v, doubtful %+v", found.Missing, found.Doubtful)
			}
		}
	}
}

// Ensure that Recover says that the header is of another commit than the meta page, and refuses a
// file of a newer format, about which it knows nothing.
func TestRecover_Header(t *testing.T) {
	path := newPath(t)
	for name, row := range map[string][]byte{
		"the header is of commit 1000": file.HeaderValue(1, 1000, 7),
		"it has version 2":             file.HeaderValue(2, 1000, 7),
	} {
		inBolt(t, path, nil, func(tx *bbolt.Tx) error {
			return errors.Join(file.MakeTables(tx), putHeader(tx, row))
		})
		found, err := file.Recover(path, file.Options{})
		switch {
		case errors.Is(err, store.ErrFormat) && strings.Contains(err.Error(), name):
		case err != nil || found.Index != 7 || !told(found.Doubtful, "", "", name):
			t.Errorf("%s: got %+v, %v", name, found, err)
		}
	}
}

// Ensure that a damaged header costs no row: Recover says that it cannot be read, and the last
// index is the highest that was seen.
func TestRecover_HeaderDamaged(t *testing.T) {
	r := newRescue(t, os.Getpagesize())
	content, key := bytes.Clone(r.content), []byte(file.HeaderKey)
	for at := 0; bytes.Contains(content[at:], key); {
		at += bytes.Index(content[at:], key) + len(key)
		content[at+1] ^= 1
	}
	found := r.of(content)
	r.wants("damaged header", found)
	if !told(found.Doubtful, "", "", "the header cannot be read") || len(found.Doubtful) != 1 ||
		len(found.Missing) != 0 || found.Index != lastOfRescue-1 {
		t.Errorf("index %d, missing %+v, doubtful %+v", found.Index, found.Missing, found.Doubtful)
	}
}

// Ensure that Recover of a file that was cut off says so, and saves all rows before the cut.
func TestRecover_CutOff(t *testing.T) {
	r := newRescue(t, os.Getpagesize())
	need := 0
	for _, page := range r.treePages() {
		need = max(need, (page+1)*r.page)
	}
	for size := need - 1; size > need/2; size -= r.page/2 + 1 {
		found := r.of(r.content[:size])
		if !told(found.Missing, "", "", fmt.Sprintf("the file is cut off: it has %d bytes", size)) {
			t.Errorf("at %d: missing %+v", size, found.Missing)
		}
		saved := make(map[string]bool)
		for _, row := range found.Keys {
			saved[row.Key] = true
		}
		for _, page := range r.treePages() {
			for _, key := range r.keysOn(page) {
				if r.end(page) <= size && !saved[key] {
					t.Errorf("at %d: %s of page %d is missing", size, key, page)
				}
			}
		}
	}
}
