package file_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/store"
	"github.com/lockd/lockd/store/internal/file"
	"github.com/lockd/lockd/store/internal/format"
	"go.etcd.io/bbolt"
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
	r.must(os.WriteFile(r.path, content, 0o600))
	found, err := file.Recover(r.path, file.Options{})
	r.must(err)
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
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		found, err := file.Recover(path, file.Options{})
		if err != nil {
			t.Fatal(err)
		}
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
		path := newPath(t)
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		found, err := file.Recover(path, file.Options{})
		if err != nil {
			t.Fatal(err)
		}
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
	must(os.WriteFile(path, content, 0o600))
	found, err := file.Recover(path, file.Options{})
	must(err)
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

// Ensure that Recover takes each record of the log that is whole, says which are not, and leaves
// out a newest one that may never have been whole.
func TestRecover_Records(t *testing.T) {
	w := newWide(t, 300)
	w.fillLog(1)
	const records = 6
	var first uint64
	var sectors [records][]int // by record: where in the file its sectors are
	for i := range records {
		before := contentOf(t, w.path)
		w.must(write(w.Store, func() { w.put(w.key(i), 900+i) }))
		after := contentOf(t, w.path)
		for at := 0; at < len(before); at += 512 {
			if !bytes.Equal(before[at:at+512], after[at:at+512]) {
				sectors[i] = append(sectors[i], at)
			}
		}
		if i == 0 {
			first = logOf(t, w.path).Next - 1
		}
		if len(sectors[i]) != 2 || sectors[i][0] < 2*os.Getpagesize() {
			t.Fatalf("record %d was written at %d", i, sectors[i])
		}
	}
	w.must(w.Close())
	if next := readLog(t, w.path).Next; next != first+records {
		t.Fatalf("there are %d records, want %d", next-first, records)
	}
	intact := contentOf(t, w.path)
	lose := func(what string, sectors []int, lost ...int) *file.Recovered {
		t.Helper()
		content := bytes.Clone(intact)
		for _, at := range sectors {
			content[at+100] ^= 1
		}
		w.must(os.WriteFile(w.path, content, 0o600))
		found, err := file.Recover(w.path, file.Options{})
		w.must(err)
		if len(found.Keys) != 300 {
			t.Errorf("%s: %d keys", what, len(found.Keys))
		}
		for i := range records {
			want := 900 + i
			if slices.Contains(lost, i) {
				want = 20 // or 40, by fillLog
			}
			if got := len(found.Keys[i].Value); got != want && (want != 20 || got != 40) {
				t.Errorf("%s: the row of record %d has %d bytes, want %d", what, i, got, want)
			}
		}
		return found
	}
	if found := lose("nothing", nil); len(found.Missing)+len(found.Doubtful) > 0 {
		t.Errorf("nothing: missing %+v, doubtful %+v", found.Missing, found.Doubtful)
	}
	for i := range records - 1 {
		for _, at := range sectors[i] {
			found := lose(fmt.Sprint("record ", i), []int{at}, i)
			text := fmt.Sprintf("record %d of the log is damaged", first+uint64(i))
			if len(found.Missing) != 1 || !told(found.Missing, "", "", text) ||
				!told(found.Doubtful, "", "", text) {
				t.Errorf("record %d: missing %+v, doubtful %+v", i, found.Missing, found.Doubtful)
			}
		}
	}
	for i := range records - 2 {
		found := lose(fmt.Sprint("two from ", i), []int{sectors[i][0], sectors[i+1][1]}, i, i+1)
		number := first + uint64(i)
		text := fmt.Sprintf("records %d to %d of the log are damaged", number, number+1)
		if len(found.Missing) != 1 || !told(found.Missing, "", "", text) {
			t.Errorf("two records from %d on: missing %+v", i, found.Missing)
		}
	}
	for _, at := range sectors[records-1] {
		found := lose("newest record", []int{at}, records-1)
		if len(found.Missing) != 0 || len(found.Doubtful) != 1 ||
			!strings.Contains(found.Doubtful[0].Text, "where a newest record would be") {
			t.Errorf("newest: missing %+v, doubtful %+v", found.Missing, found.Doubtful)
		}
	}
	// Without the header it is not known which records count.
	intact = bytes.ReplaceAll(intact, []byte(file.HeaderKey), []byte("LOCKD"))
	found := lose("the header", nil)
	for i := range records {
		if !told(found.Doubtful, "keys", w.key(i), "it is of the log, and the header is missing") {
			t.Errorf("no header: nothing is said of record %d", i)
		}
	}
	if !told(found.Doubtful, "", "", "the header cannot be read") || len(found.Missing) > 0 {
		t.Errorf("no header: missing %+v", found.Missing)
	}
}

// Ensure that Recover does not take the rest of a record for a record, even if the rest reads like
// one: not of the newest record, of which a crash has left the rest, and not of one in the middle,
// whose start the disk has lost.
func TestRecover_RestOfARecord(t *testing.T) {
	const room = 512 - 16 // of a sector for the payload
	w := newWide(t, 300)
	w.fillLog(3)
	path, key := w.copied(), w.key(0)
	head := logOf(t, w.path).Head
	row := schema.Key{Key: key, Value: []byte("never committed"), ModifyIndex: head.Index}
	rest, err := file.RecordOf(head, []file.RowWrite{
		file.Write(0, key, format.KeyRows.Append(nil, key, &row)),
	})
	w.must(err)
	payload := append(make([]byte, room), rest...)
	w.must(file.AppendRecord(path, 0, payload, func(sector int) bool { return sector > 0 }))
	found, err := file.Recover(path, file.Options{})
	w.must(err)
	if len(found.Missing)+len(found.Doubtful) > 0 || bytes.Equal(found.Keys[0].Value, row.Value) {
		t.Errorf("newest: %q, missing %+v, doubtful %+v", found.Keys[0].Value, found.Missing,
			found.Doubtful)
	}

	lost := 0
	for size := range room { // one of these has the rest begin within the first row
		before := contentOf(t, w.path)
		w.must(write(w.Store, func() {
			for i, size := range []int{size, 10} {
				w.Keys.Put(w.key(i), schema.Key{Key: w.key(i), Value: make([]byte, size),
					CreateIndex: 1, ModifyIndex: w.Next(), LockIndex: 1, Fence: w.Next()})
			}
		}))
		after, number := contentOf(t, w.path), logOf(t, w.path).Next-1
		for range 2 {
			w.must(write(w.Store, func() { w.put(w.key(9), size) }))
		}
		content := contentOf(t, w.path)
		var sectors []int
		for at := 0; at < len(before) && len(before) == len(content); at += 512 {
			if !bytes.Equal(before[at:at+512], after[at:at+512]) {
				sectors = append(sectors, at)
			}
		}
		if len(sectors) == 0 || len(sectors) > 2 || logOf(t, w.path).First > number {
			continue // a checkpoint went on with it, or is done
		}
		lost++
		copy(content[sectors[0]:sectors[0]+512], before[sectors[0]:])
		w.must(os.WriteFile(path, content, 0o600))
		found, err := file.Recover(path, file.Options{})
		w.must(err)
		if !told(found.Missing, "", "", fmt.Sprintf("record %d of the log is damaged", number)) {
			t.Errorf("record %d, size %d: missing %+v", number, size, found.Missing)
		}
	}
	if lost < room/2 {
		t.Errorf("%d records were tried", lost)
	}
}

// Ensure that Recover takes all records if any part of the first page of a segment is damaged that
// has none of them.
func TestRecover_HeadOfASegment(t *testing.T) {
	w := newWide(t, 300)
	w.fillLog(1)
	for i := range 6 {
		w.must(write(w.Store, func() { w.put(w.key(i), 900) }))
	}
	w.must(w.Close())
	intact := contentOf(t, w.path)
	segments := 0
	for at := 0; at < len(intact); at += os.Getpagesize() {
		if !bytes.HasPrefix(intact[at+headSize+leafElement:], []byte("log")) {
			continue
		}
		segments++
		for bit := 0; bit < 8*(headSize+leafElement+3); bit++ {
			content := bytes.Clone(intact)
			content[at+bit/8] ^= 1 << (bit % 8)
			w.must(os.WriteFile(w.path, content, 0o600))
			found, err := file.Recover(w.path, file.Options{})
			w.must(err)
			for _, remark := range found.Missing {
				if strings.HasPrefix(remark.Text, "record") {
					t.Errorf("segment %d, bit %d: %s", segments, bit, remark.Text)
				}
			}
		}
	}
	if segments < 2 {
		t.Errorf("%d segments", segments)
	}
}

// keysText returns the keys that were recovered, as dump has them.
func keysText(found *file.Recovered) string {
	rows := func(yield func(string, *schema.Key) bool) {
		for i := range found.Keys {
			if !yield(found.Keys[i].Key, &found.Keys[i]) {
				return
			}
		}
	}
	return string(dumpTable(nil, &format.KeyRows, rows))
}

// Ensure that Recover of a sound file has the rows that an Open has, and says nothing of them,
// however far the log and its checkpoint are; and that without the header, which says how much of
// the log counts, it loses no row, and says of each one whether it may be out of date.
func TestRecover_LogAtAnyTime(t *testing.T) {
	path := newPath(t)
	recovered := func(content []byte) *file.Recovered {
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
	logged, doubtful := 0, 0
	for i, image := range images(t, 60, func(s *store.Store, round int) {
		for i := range 60 {
			n := i*7 + round*60
			key, gone := fmt.Sprintf("user/%03d", n%211), fmt.Sprintf("user/%03d", (n+100)%211)
			s.Keys.Put(key, schema.Key{Key: key, Value: fmt.Appendf(nil, "%080d", round),
				ModifyIndex: s.Next()})
			if s.Keys.Newest(gone) != nil {
				s.Keys.Delete(gone)
			}
		}
	}, nil) {
		found := recovered(image.content)
		if text := keysText(found); text != image.state.rows || found.Index != image.state.index {
			t.Errorf("commit %d: got %d keys, index %d, want index %d", i, len(found.Keys),
				found.Index, image.state.index)
		}
		if len(found.Missing)+len(found.Doubtful) != 0 {
			t.Errorf("commit %d: missing %+v, doubtful %+v", i, found.Missing, found.Doubtful)
		}
		if image.records == 0 {
			continue
		}
		logged++
		current := make(map[string]uint64)
		for _, row := range found.Keys {
			current[row.Key] = row.ModifyIndex
		}
		found = recovered(bytes.ReplaceAll(image.content, []byte(file.HeaderKey), []byte("LOCKD")))
		for _, row := range found.Keys {
			last, there := current[row.Key]
			delete(current, row.Key)
			of := told(found.Doubtful, "keys", row.Key, "it is of the log, and the header is ")
			if of {
				doubtful++
			}
			if !of && (!there || row.ModifyIndex != last) || there && row.ModifyIndex < last {
				t.Errorf("commit %d: %s is of index %d, not %d", i, row.Key, row.ModifyIndex, last)
			}
		}
		if len(current) > 0 {
			t.Errorf("commit %d: %d keys are not there", i, len(current))
		}
	}
	if logged < 20 || doubtful == 0 {
		t.Errorf("%d commits were in the log, %d rows doubtful", logged, doubtful)
	}
}

// Ensure that a row that a checkpoint has moved to its table stays as it is when a record of the
// log is damaged that had it too: an older record neither replaces nor deletes it; and that the row
// is sure also if the header is missing.
func TestRecover_OlderRecordThanTheTable(t *testing.T) {
	path, tried := newPath(t), 0
	recovered := func(content []byte) (indexes map[string]uint64, doubtful []file.Remark) {
		t.Helper()
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		found, err := file.Recover(path, file.Options{})
		if err != nil {
			t.Fatal(err)
		}
		indexes = make(map[string]uint64)
		for _, row := range found.Keys {
			indexes[row.Key] = row.ModifyIndex
		}
		return indexes, found.Doubtful
	}
	for _, image := range images(t, 40, func(s *store.Store, round int) {
		for i := range 48 { // each is written, or deleted, twice in a short time
			key := fmt.Sprintf("user/%03d", i)
			switch phase := (round + i) % 12; {
			case i%2 == 0 && phase == 0 && s.Keys.Newest(key) != nil:
				s.Keys.Delete(key)
			case phase == 0 || phase == 3:
				s.Keys.Put(key, schema.Key{Key: key, Value: make([]byte, 90),
					ModifyIndex: s.Next()})
			}
		}
	}, nil) {
		whole, _ := recovered(image.content)
		state := readLog(t, path)
		if state.Taken == 0 {
			continue
		}
		var moved []string // in the version that is in the file's table
		inBolt(t, path, nil, func(tx *bbolt.Tx) error {
			return tx.Bucket([]byte(format.TableName(0))).ForEach(func(key, value []byte) error {
				index, err := format.Changed(0, string(key), value)
				if index == whole[string(key)] {
					moved = append(moved, string(key))
				}
				return err
			})
		})
		for at := 2 * os.Getpagesize(); at < len(image.content); at += 512 {
			number := binary.BigEndian.Uint64(image.content[at+8:])
			if number < state.First || number >= state.Next {
				continue // it is not a sector of a record that counts
			}
			tried++
			content := bytes.Clone(image.content)
			content[at+100] ^= 1
			got, _ := recovered(content)
			for _, key := range moved {
				if got[key] != whole[key] {
					t.Errorf("without record %d: %s is of index %d, and its table has %d", number,
						key, got[key], whole[key])
				}
			}
		}
		headless := bytes.ReplaceAll(image.content, []byte(file.HeaderKey), []byte("LOCKD"))
		_, doubtful := recovered(headless)
		for _, key := range moved {
			if told(doubtful, "keys", key, "") {
				t.Errorf("without the header, %s of the table is doubtful", key)
			}
		}
	}
	t.Logf("%d sectors", tried)
	if tried < 20 {
		t.Errorf("%d sectors were damaged", tried)
	}
}
