package file_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/store"
	"github.com/lockd/lockd/store/internal/file"
	"github.com/lockd/lockd/store/internal/format"
)

// The kinds of the pages of bbolt's trees, and the sizes of their elements.
const (
	branchKind    = 1
	leafKind      = 2
	branchElement = 16
	leafElement   = 16
)

// feignLeaf writes into the content what looks like the head of a leaf with the given number of
// elements, and more pages behind it. Extent returns the place of an element's key, which has one
// byte, and the end of its value.
func feignLeaf(
	content []byte, number, more, elements int, flags uint32, extent func(i int) (key, end int),
) {
	order.PutUint64(content, uint64(number))
	order.PutUint16(content[8:], leafKind)
	order.PutUint16(content[10:], uint16(elements))
	order.PutUint32(content[12:], uint32(more))
	for i := range elements {
		at := headSize + i*leafElement
		key, end := extent(i)
		order.PutUint32(content[at:], flags)
		order.PutUint32(content[at+4:], uint32(key-at))
		order.PutUint32(content[at+8:], 1)
		order.PutUint32(content[at+12:], uint32(end-key-1))
	}
}

// hostile are contents of a file. A value of a row may have such a content too.
var hostile = map[string]func() []byte{
	// Each small table has two tables that both go on to the end.
	"NestedTables": func() []byte {
		const size, step = 4096, 72
		content := make([]byte, 4*size)
		page := content[2*size : 3*size]
		for at := 0; at+2*step < size; at += step {
			leaf := page[at:]
			feignLeaf(leaf, 2, 0, 2, 1, func(int) (int, int) { return step - 17, len(leaf) })
		}
		return content
	},
	// Each page says that all later pages belong to it.
	"OverlappingPages": func() []byte {
		const size, pages = 1 << 10, 24 << 10
		content := make([]byte, pages*size)
		for page := 2; page < pages-1; page++ {
			feignLeaf(content[page*size:], page, pages-page-1, 0, 0, nil)
		}
		return content
	},
	// Each element of one page has all that follows the page.
	"OverlappingRows": func() []byte {
		const size, pages, elements = 4096, 4 << 10, 1<<16 - 1
		content := make([]byte, pages*size)
		for page := 3; page < pages; page++ {
			binary.NativeEndian.PutUint64(content[page*size:], uint64(page))
		}
		leaf := content[2*size:]
		feignLeaf(leaf, 2, pages-3, elements, 0, func(int) (int, int) {
			return headSize + elements*leafElement, len(leaf) - size
		})
		return content
	},
	// Each page is a list of tables, with a table of fewer bytes than any has.
	"TablesCutOff": func() []byte {
		const size, pages = 1 << 10, 20
		content := make([]byte, pages*size)
		for page := 2; page < pages; page++ {
			feignLeaf(content[page*size:], page, 0, 1, 1, func(int) (int, int) {
				return headSize + leafElement, headSize + leafElement + page
			})
		}
		return content
	},
	// Each page is the first one of a segment of the log.
	"OverlappingSegments": func() []byte {
		const size, pages = 1 << 10, 32 << 10
		content := make([]byte, pages*size)
		for page := 2; page < pages; page++ {
			at := content[page*size:]
			binary.NativeEndian.PutUint64(at, uint64(page))
			copy(at[512:1024], file.EmptySector(0, 1))
		}
		return content
	},
}

// Ensure that Recover ends soon, whatever the pages of a file seem to contain: any value may be
// such a page.
func TestRecover_HostilePages(t *testing.T) {
	for name, content := range hostile {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := newPath(t)
			if err := os.WriteFile(path, content(), 0o600); err != nil {
				t.Fatal(err)
			}
			within(t, 30*time.Second, func() {
				_, err := file.Recover(path, file.Options{})
				if !errors.Is(err, store.ErrCorrupt) && !errors.Is(err, store.ErrFormat) {
					t.Errorf("got %v", err)
				}
			})
		})
	}
}

// Ensure that Recover ends soon if all branches of a tree lead to the same branch, which does not
// fit any of them.
func TestRecover_BranchesThatLeadToOne(t *testing.T) {
	const branches, elements = 400, 800
	r := newRescue(t, 1<<14)
	table := r.content[r.root()*r.page:]
	table = table[bytes.Index(table, []byte("keys"))+len("keys"):]
	top := int(order.Uint64(table))
	next := len(r.content) / r.page // the branches below top, then the one, then an empty page
	content := append(bytes.Clone(r.content), make([]byte, (branches+2)*r.page)...)
	feign := func(page, elements int, element func(i int) (key uint32, child int)) {
		at := content[page*r.page : (page+1)*r.page]
		clear(at)
		order.PutUint64(at, uint64(page))
		order.PutUint16(at[8:], branchKind)
		order.PutUint16(at[10:], uint16(elements))
		for i := range elements {
			key, child := element(i)
			from, place := headSize+i*branchElement, headSize+elements*branchElement+4*i
			order.PutUint32(at[from:], uint32(place-from))
			order.PutUint32(at[from+4:], 4)
			order.PutUint64(at[from+8:], uint64(child))
			binary.BigEndian.PutUint32(at[place:], key)
		}
	}
	one := next + branches
	feign(top, branches, func(i int) (uint32, int) { return uint32(i * elements), next + i })
	for page := range branches {
		least := page * elements
		feign(next+page, elements, func(i int) (uint32, int) { return uint32(least + i), one })
	}
	feign(one, elements, func(i int) (uint32, int) { return uint32(1<<30 + i), one + 1 })
	r.must(os.WriteFile(r.path, content, 0o600))
	within(t, 30*time.Second, func() {
		found, err := file.Recover(r.path, file.Options{})
		if err != nil || len(found.Missing) == 0 {
			t.Errorf("got %+v, %v, want that rows are missing", found, err)
		}
	})
}

// Ensure that a record that claims more bytes than any log has is no record, on 32 bits too.
func TestRecover_RecordOfHostileLength(t *testing.T) {
	for _, left := range []uint32{0, 1 << 30, 1 << 31, 1<<32 - 496, 1<<32 - 1} {
		w := newWide(t, 300)
		w.fillLog(3)
		w.must(w.Close())
		want := readLog(t, w.path)
		w.must(file.AppendSector(w.path, left))
		if _, err := openStore(w.path); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("%d: open: got %v, want ErrCorrupt", left, err)
		}
		got, err := file.Recover(w.path, file.Options{})
		if err != nil || got.Index != want.Head.Index || len(got.Keys) != 300 {
			t.Errorf("%d: got %+v, %v", left, got, err)
		}
	}
}

// Ensure that Recover takes nothing of a record that no writer wrote, although its checksums hold:
// the backup would have an index that Restore refuses, or a row that was never committed.
func TestRecover_RecordOfNoWriter(t *testing.T) {
	for name, payloadOf := range map[string]func(head file.RecordHead, row file.RowWrite) []byte{
		"Index": func(head file.RecordHead, row file.RowWrite) []byte {
			head.Index = 1 << 63
			payload, _ := file.RecordOf(head, []file.RowWrite{row})
			return payload
		},
		"Table": func(head file.RecordHead, row file.RowWrite) []byte {
			unknown := file.Write(format.TableCount, "k", nil)
			payload, _ := file.RecordOf(head, []file.RowWrite{row, unknown})
			return payload
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWide(t, 300)
			w.fillLog(3)
			w.must(w.Close())
			head, key := readLog(t, w.path).Head, w.key(0)
			row := schema.Key{Key: key, Value: []byte("never"), ModifyIndex: head.Index}
			payload := payloadOf(head, file.Write(0, key, format.KeyRows.Append(nil, key, &row)))
			w.must(file.AppendRecord(w.path, 0, payload, nil))
			got, err := file.Recover(w.path, file.Options{})
			w.must(err)
			if got.Index != head.Index || string(got.Keys[0].Value) == "never" {
				t.Errorf("index %d, want %d; %s is %q", got.Index, head.Index, key,
					got.Keys[0].Value)
			}
		})
	}
}

// Ensure that exactly the keys in the lost ranges are found to be lost, however the ranges overlap.
func TestRecover_LostRanges(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	key := func() []byte { return []byte{byte('a' + random.IntN(12))} }
	for range 20_000 {
		lost := make([]file.Bounds, random.IntN(6))
		for i := range lost {
			if random.IntN(6) > 0 {
				lost[i][0] = key()
			}
			if random.IntN(6) > 0 {
				lost[i][1] = key() // may be below the first
			}
		}
		text, found := fmt.Sprintf("%q", lost), file.FindLost(slices.Clone(lost))
		for c := byte('a'); c <= 'm'; c++ {
			has := func(b file.Bounds) bool {
				return string(b[0]) <= string(c) && (b[1] == nil || string(c) < string(b[1]))
			}
			if want := slices.ContainsFunc(lost, has); found([]byte{c}) != want {
				t.Fatalf("%s: %c: got %t", text, c, !want)
			}
		}
	}
}

// Ensure that rows are found soon among very many ranges that are lost.
func TestRecover_ManyLostRanges(t *testing.T) {
	const many = 300_000
	numbered := func(i int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(i)) }
	lost := make([]file.Bounds, many)
	for i := range lost {
		lost[i] = file.Bounds{numbered(2 * i), numbered(2*i + 1)}
	}
	within(t, 30*time.Second, func() {
		found, n := file.FindLost(lost), 0
		for i := range 2 * many {
			if found(numbered(i)) {
				n++
			}
		}
		if n != many {
			t.Errorf("found %d, want %d", n, many)
		}
	})
}

// within fails the test if the function does not return in time.
func within(t *testing.T, limit time.Duration, fn func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn()
	}()
	select {
	case <-done:
	case <-time.After(limit):
		t.Fatalf("it has not come to an end within %v", limit)
	}
}
