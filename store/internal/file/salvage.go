package file

import (
	"errors"
	"io"
	"os"
	"strings"

	"github.com/lockd/lockd/store/internal/format"
)

// allTables stands for every table in a remark.
const allTables byte = 0xfc

// salvage reads the rows of a file that may be damaged anywhere. It trusts only checksums, and uses
// data without a checksum only as far as the data is consistent. First it walks the trees. Then it
// looks for the rows that it could not reach in all pages that it has not visited.
type salvage struct {
	file     *os.File
	size     int64
	pageSize uint64
	pages    uint64
	visited  []bool // by page: it is sound, and the walk has come to it
	budget   uint64 // pages that may yet be read because others say so: see afford
	meta     metaPage
	metaErr  error // why there is no meta page to begin from

	headed bool   // there is a header
	last   header // with the tally of the newest record, if there is a newer one
	rows   map[rowPlace]candidate
	index  uint64 // the highest that was seen
	doubts string // what is said of the rows that the walk comes to; empty: nothing
	lost   [format.TableCount][]bounds
	log    []*scan

	missing, doubtful []Remark
}

// What is said of rows that are not from where they should be.
const (
	outOfUse = "it is of a page that no table leads to: it may be older than what was committed " +
		"last, or have been deleted"
	outOfPlace = "it is of a page that does not fit the page above it: it may be older than what " +
		"was committed last, or have been deleted"
	ofNoHeader = "it is of the log, and the header is missing that says how much of it counts: " +
		"it may be older than what was committed last, or have been deleted"
)

func (s *salvage) run() (*Recovered, error) {
	s.begin()
	if s.metaErr == nil {
		s.walkRoot()
	} else {
		s.miss(allTables, "", "neither of the two meta pages is whole")
		for table := range format.TableCount {
			s.lose(table, bounds{})
		}
	}
	if s.headed && s.last.version != formatVersion {
		return nil, errVersion(s.last.version)
	}
	s.scanOthers()
	s.checkHeader()
	s.readLog()
	if len(s.missing) == 0 && len(s.doubtful) == 0 {
		s.checkTally()
	}
	return s.result()
}

// begin finds the meta page, or at least the size of a page.
func (s *salvage) begin() {
	meta, other, err := newestMeta(s.file)
	if err != nil {
		s.metaErr, s.pageSize = err, s.likelyPageSize()
	} else {
		s.meta, s.pageSize = meta, uint64(meta.pageSize)
		if err := inspectPair(meta, other); err != nil || !other.whole {
			s.doubt(allTables, "", "meta page %d is damaged: unless a power cut has torn it, the "+
				"last commit is missing", other.number)
		}
		if lastClean(s.file, s.pageSize).commit > meta.commit {
			s.miss(allTables, "", "%s", because(errLastLost))
		}
	}
	s.pages = (uint64(s.size) + s.pageSize - 1) / s.pageSize
	s.visited, s.budget = make([]bool, s.pages), readsOfPage*s.pages
	if need := s.meta.highWater; s.metaErr == nil && need > uint64(s.size)/s.pageSize {
		s.miss(allTables, "", "the file is cut off: it has %d bytes, and needs %d", s.size,
			need*s.pageSize)
	}
}

// likelyPageSize returns the page size with which most pages have their own number.
func (s *salvage) likelyPageSize() uint64 {
	best, most := uint64(os.Getpagesize()), 0
	for size := uint64(leastPage); size <= 1<<16; size *= 2 {
		fit := 0
		for page := uint64(firstPage); page*size < uint64(s.size); page++ {
			var number [numberSize]byte
			n, _ := s.file.ReadAt(number[:], int64(page*size))
			if n == len(number) && pageNumber(number[:]) == page {
				fit++
			}
		}
		if fit > most {
			best, most = size, fit
		}
	}
	return best
}

// read returns the content of count pages. Where the disk cannot read, and behind the end of the
// file, the content is zeros, which are no valid page.
func (s *salvage) read(page, count uint64) []byte {
	count = min(count, s.pages-page)
	content := make([]byte, count*s.pageSize)
	_, err := s.file.ReadAt(content, int64(page*s.pageSize))
	if err == nil || errors.Is(err, io.EOF) {
		return content
	}
	for at := uint64(0); at < count; at++ {
		part := content[at*s.pageSize : (at+1)*s.pageSize]
		if n, err := s.file.ReadAt(part, int64((page+at)*s.pageSize)); err != nil {
			clear(part[n:])
		}
	}
	return content
}

// readsOfPage is how often, on average, each page may be read because another page leads to it, or
// claims it. In a sound file that happens once.
const readsOfPage = 8

// afford reports whether that number of pages may be read because another page says so, and counts
// them. The other page has no checksum, and may be part of a value: if each page of a large file
// claimed all pages that follow, or led to the same damaged branch, reading them would never end.
func (s *salvage) afford(pages uint64) bool {
	if pages > s.budget {
		return false
	}
	s.budget -= pages
	return true
}

// withOverflow takes the content of the page, and returns it with the pages that belong to the
// page, if there can be that many.
func (s *salvage) withOverflow(page uint64, content []byte) []byte {
	more := pageOverflow(content)
	if more == 0 || more >= s.pages-page || !s.afford(more) {
		return content
	}
	return s.read(page, 1+more)
}

// pageAt returns the content of the page with the pages that belong to it, and what is wrong with
// it. There is no content if it is another page.
func (s *salvage) pageAt(page uint64, in bounds) (content []byte, err error) {
	if page < firstPage || page >= s.pages {
		return nil, misplaced(page, "is not one of the file")
	}
	if s.visited[page] {
		return nil, misplaced(page, "is used twice")
	}
	if !s.afford(1) {
		return nil, misplaced(page, "is left out, because pages lead to others far too often")
	}
	content = s.read(page, 1)
	if pageNumber(content) != page {
		return nil, misplaced(page, "has the number of another one, or none")
	}
	content = s.withOverflow(page, content)
	switch {
	case pageOverflow(content) >= s.pages-page:
		return content, misplaced(page, "has more pages behind it than there are")
	case elementCount(content) == 0 && page != s.meta.root:
		return content, misplaced(page, "has nothing in it")
	}
	end, err := inspectElements(page, content, in)
	if err == nil && end < uint64(len(content))-s.pageSize {
		err = misplaced(page, "has more pages behind it than it fills") // they may be others' pages
	}
	return content, err
}

// walkRoot walks the tree of the buckets.
func (s *salvage) walkRoot() {
	seen := make(map[string]bool)
	s.walk(s.meta.root, bounds{}, 0, func(content []byte, _ bounds, err error) {
		if err != nil {
			s.miss(allTables, "", "the list of the tables is damaged: %s", because(err))
		}
		for e := range soundElements(content) {
			if name := string(e.key); e.flags == bucketFlag && !seen[name] &&
				len(e.value) >= bucketSize {
				seen[name] = s.walkBucket(name, e.value)
			}
		}
	})
	for table := range format.TableCount {
		if !seen[format.TableName(table)] {
			s.miss(table, "", "the table is not in the list of the tables")
			s.lose(table, bounds{})
		}
	}
}

// because returns the error's text without the prefix of all such errors.
func because(err error) string {
	return strings.TrimPrefix(err.Error(), format.ErrCorrupt.Error()+": ")
}

// walkBucket walks a bucket, and reports whether files of this package have such a bucket.
func (s *salvage) walkBucket(name string, value []byte) bool {
	b := bucket{value: value}
	switch name {
	case format.HeaderBucket:
		s.walkValue(b, s.takeHeader)
		return true
	case string(segmentName(0)), string(segmentName(1)):
		s.addSegment(name[len(name)-1]-'0', b.root())
		return true
	}
	for table := range format.TableCount {
		if format.TableName(table) == name {
			s.walkValue(b, func(content []byte, in bounds, err error) {
				s.takeLeaf(table, content, in, err)
			})
			return true
		}
	}
	return false
}

// leafTaker takes a leaf, whose keys are within the bounds, and what is wrong with it, if anything
// is.
type leafTaker func(content []byte, in bounds, err error)

func (s *salvage) walkValue(b bucket, take leafTaker) {
	if b.root() != 0 {
		s.walk(b.root(), bounds{}, 0, take)
		return
	}
	content, err := b.inline()
	take(content, bounds{}, err)
}

// walk calls take for the leaves below the page, and for damaged pages, whose elements may still be
// rows.
func (s *salvage) walk(page uint64, in bounds, depth int, take leafTaker) {
	if depth == deepest {
		take(nil, in, misplaced(page, "is too deep in its tree"))
		return
	}
	content, err := s.pageAt(page, in)
	if err != nil {
		before := s.doubts
		if misfit(page, content, in) {
			s.doubts = outOfPlace
		}
		take(content, in, err)
		s.walkBroken(content, depth, take)
		s.doubts = before
		return
	}
	for i := range uint64(len(content)) / s.pageSize {
		s.visited[page+i] = true
	}
	if pageKind(content) == leafFlag {
		take(content, in, nil)
		return
	}
	count := elementCount(content)
	for i := range count {
		e := elementAt(content, i)
		below := bounds{e.key, in.limit}
		if i+1 < count {
			below.limit = elementAt(content, i+1).key
		}
		s.walk(e.child, below, depth+1, take)
	}
}

// misfit reports whether a page is sound in itself, and is not the one that the page above it leads
// to. It may be an older page, of which the disk has lost the last write.
func misfit(page uint64, content []byte, in bounds) bool {
	if len(content) == 0 {
		return false
	}
	_, inItself := inspectElements(page, content, bounds{})
	_, there := inspectElements(page, content, in)
	return inItself == nil && there != nil
}

// walkBroken walks what is below a damaged branch, where page and branch agree.
func (s *salvage) walkBroken(content []byte, depth int, take leafTaker) {
	if len(content) == 0 || pageKind(content) != branchFlag {
		return
	}
	for i := range min(elementCount(content), (len(content)-headSize)/elementSize) {
		position, keySize, _ := extent(content, branchFlag, i)
		if keySize == 0 || position+keySize > uint64(len(content)) {
			continue
		}
		e := elementAt(content, i)
		below := bounds{least: e.key}
		if _, err := s.pageAt(e.child, below); err == nil {
			s.walk(e.child, below, depth+1, take)
		}
	}
}
