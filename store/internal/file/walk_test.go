package file_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"testing"

	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/store"
	"github.com/lockd/lockd/store/internal/file"
	"github.com/lockd/lockd/store/internal/format"
	"go.etcd.io/bbolt"
)

var order = binary.NativeEndian

// keyTree is the content of a file with a tree of keys, and pages in it.
type keyTree struct {
	content []byte
	header  []byte // the leaf of the header's bucket, which lies in a value
	branch  []byte // the root of the keys
	leaf    []byte // the first leaf below the root of the keys
	pages   uint64 // how many the file has
}

// newKeyTree returns a sound file. An edit of a page is one of the content.
func newKeyTree(t *testing.T) *keyTree {
	t.Helper()
	path := newPath(t)
	s := store.New()
	if err := s.Open(path, quick); err != nil {
		t.Fatal(err)
	}
	err := write(s, func() {
		for i := range os.Getpagesize() / 8 { // more than a page has room for
			key := fmt.Sprintf("key/%05d", i)
			s.Keys.Put(key, schema.Key{Key: key, ModifyIndex: s.Next()})
		}
	})
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}

	size := os.Getpagesize()
	tree := &keyTree{content: contentOf(t, path), pages: uint64(usedSize(t, path) / int64(size))}
	page := func(number uint64) []byte { return tree.content[int(number)*size:][:size] }
	var root uint64
	inBolt(t, path, nil, func(tx *bbolt.Tx) error {
		root = uint64(tx.Bucket([]byte(format.TableName(format.KeyRows.Table))).Root())
		return errors.New("change nothing")
	})
	tree.branch = page(root)
	tree.leaf = page(order.Uint64(tree.branch[headSize+8:]))
	top := page(order.Uint64(tree.content[newestMeta(tree.content, size)+16:]))
	_, after, _ := bytes.Cut(top, []byte(file.HeaderBucket))
	tree.header = after[16:] // behind the bucket's root and sequence
	return tree
}

// leafKey returns the key of an element in the leaf.
func (p *keyTree) leafKey(i int) []byte {
	at := p.leafHead(i)
	key := headSize + 16*i + int(order.Uint32(at[4:]))
	return p.leaf[key : key+int(order.Uint32(at[8:]))]
}

// leafHead returns the head of an element in the leaf: its flags, where its key is, and the lengths
// of the key and of the value.
func (p *keyTree) leafHead(i int) []byte { return p.leaf[headSize+16*i:][:16] }

// setChild makes the branch lead to that page in place of the leaf.
func (p *keyTree) setChild(page uint64) { order.PutUint64(p.branch[headSize+8:], page) }

// deepen puts that number of branches, on pages of their own, above the leaf.
func (p *keyTree) deepen(branches int) {
	size := os.Getpagesize()
	child, key := order.Uint64(p.branch[headSize+8:]), p.leafKey(0)
	var added []byte
	for range branches {
		page := make([]byte, size)
		makeBranch(page, p.pages, key, child)
		added = append(added, page...)
		child, p.pages = p.pages, p.pages+1
	}
	p.setChild(child)
	meta := p.content[newestMeta(p.content, size)-headSize:]
	used := int(order.Uint64(meta[headSize+40:])) * size
	order.PutUint64(meta[headSize+40:], p.pages)
	seal(meta)
	p.content = append(p.content[:used:used], added...)
}

// makeBranch makes the page a branch of that number, which leads to one child.
func makeBranch(page []byte, number uint64, key []byte, child uint64) {
	clear(page)
	order.PutUint64(page, number)
	order.PutUint16(page[8:], branchKind)
	order.PutUint16(page[10:], 1)
	order.PutUint32(page[headSize:], 16) // from the element to its key
	order.PutUint32(page[headSize+4:], uint32(len(key)))
	order.PutUint64(page[headSize+8:], child)
	copy(page[headSize+16:], key)
}

// Ensure that a file is refused if one of its pages is not as bbolt writes them, even where all
// rows could be read. bbolt would panic, or overwrite pages that are in use.
func TestWalk_RefusesAPage(t *testing.T) {
	for name, test := range map[string]struct {
		edit func(p *keyTree)
		text string
	}{
		"Untouched": {func(*keyTree) {}, ""},
		"KeysUnordered": {func(p *keyTree) {
			third := bytes.Clone(p.leafKey(3))
			copy(p.leafKey(3), p.leafKey(4))
			copy(p.leafKey(4), third)
		}, "out of its place"},
		"KeyTwice": {func(p *keyTree) { copy(p.leafKey(4), p.leafKey(3)) },
			"out of its place"},
		"KeyOfTheNextPage": {func(p *keyTree) {
			p.leafKey(int(order.Uint16(p.leaf[10:])) - 1)[0] = 0xff
		}, "out of its place"},
		"KeyEmpty": {func(p *keyTree) { order.PutUint32(p.leafHead(3)[8:], 0) },
			"not filled"},
		"Gap": {func(p *keyTree) {
			order.PutUint32(p.leafHead(3)[4:], order.Uint32(p.leafHead(3)[4:])+1)
		}, "not filled"},
		"ValueBeyondThePage": {func(p *keyTree) {
			order.PutUint32(p.leafHead(3)[12:], math.MaxUint32)
		}, "not filled"},
		"ElementUnknown": {func(p *keyTree) { order.PutUint32(p.leafHead(3), 2) },
			"unknown kind"},
		"LeafForTheListOfTables": {func(p *keyTree) {
			page := os.Getpagesize()
			root := order.Uint64(p.content[newestMeta(p.content, page)+16:])
			list := p.content[int(root)*page:][:page]
			copy(list, p.leaf)
			order.PutUint64(list, root)
		}, "among the buckets"},
		"PageUnknown": {func(p *keyTree) { order.PutUint16(p.leaf[8:], branchKind|leafKind) },
			"neither a branch"},
		"TooMany": {func(p *keyTree) { order.PutUint16(p.leaf[10:], math.MaxUint16) },
			"more in it than"},
		"Empty":  {func(p *keyTree) { order.PutUint16(p.leaf[10:], 0) }, "nothing in it"},
		"Number": {func(p *keyTree) { order.PutUint64(p.leaf, 99) }, "number of another one"},
		"Overflow": {func(p *keyTree) { order.PutUint32(p.leaf[12:], 1) },
			"used twice"},
		"OverflowBeyondTheFile": {func(p *keyTree) {
			order.PutUint32(p.leaf[12:], math.MaxUint32)
		}, "not one of the file"},
		"ChildIsMeta": {func(p *keyTree) { p.setChild(1) }, "page 1 is not one of the file"},
		"ChildBehindTheFile": {func(p *keyTree) { p.setChild(p.pages) },
			"not one of the file"},
		"ChildFarBehind": {func(p *keyTree) { p.setChild(math.MaxUint64) },
			"not one of the file"},
		"Deep":    {func(p *keyTree) { p.deepen(3) }, ""},
		"TooDeep": {func(p *keyTree) { p.deepen(100) }, "too deep in its tree"},
		"BucketUnknown": {func(p *keyTree) { order.PutUint16(p.header[8:], branchKind) },
			"bucket that is not one"},
		"BucketNotFilled": {func(p *keyTree) { order.PutUint16(p.header[10:], 0) },
			"bucket that is not filled"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newKeyTree(t)
			test.edit(p)
			path := newPath(t)
			if err := os.WriteFile(path, p.content, 0o600); err != nil {
				t.Fatal(err)
			}
			mustRefuse(t, path, test.text)
		})
	}
}
