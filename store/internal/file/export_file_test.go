package file

import (
	"bytes"
	"encoding/binary"
	"errors"

	"github.com/lockd/lockd/store/internal/format"
	"go.etcd.io/bbolt"
)

// The header's place in the file.
const (
	HeaderBucket = format.HeaderBucket
	HeaderKey    = headerKey
)

// HeaderValue is the header of a file of any version of the format, without rows.
func HeaderValue(version, commit, index uint64) []byte {
	row := header{version: version, commit: commit, index: index}
	return headerRows.Append(nil, headerKey, &row)
}

// NextHeader is the header of a commit that changes nothing in it. If record is not 0, the log is
// empty and goes on with that record.
func NextHeader(tx *bbolt.Tx, record uint64) ([]byte, error) {
	value := tx.Bucket([]byte(format.HeaderBucket)).Get([]byte(headerKey))
	row, err := headerRows.Decode(headerKey, value)
	row.commit = uint64(tx.ID())
	if record > 0 {
		row.log.first, row.log.next, row.log.taken = record, record, format.Write{}
	}
	return headerRows.Append(nil, headerKey, &row), err
}

// RecordHead is what a record says of all rows.
type RecordHead struct{ Index, Rows, Sum uint64 }

func (h RecordHead) header() header {
	return header{index: h.Index, tally: format.Tally{Rows: h.Rows, Sum: h.Sum}}
}

// ReadRecord returns what a record with that payload says.
func ReadRecord(payload []byte) (RecordHead, []RowWrite, error) {
	last, rows, err := readRecord(payload)
	return RecordHead{last.index, last.tally.Rows, last.tally.Sum}, rows, err
}

// RecordOf returns the payload of a record with that head and those rows.
func RecordOf(head RecordHead, rows []RowWrite) ([]byte, error) {
	return makeRecord(rows, head.header(), recordSize(rows))
}

// AppendRecord writes sectors of a record with that payload to the log of the file, in the place of
// the next record. The record's number is the next record's number plus number.
func AppendRecord(path string, number int, payload []byte, keep func(sector int) bool) error {
	f, err := Open(path, Options{NoSync: true}, Unread{})
	if err != nil {
		return err
	}
	l := &f.log
	l.next += uint64(number)
	at := l.reserve(sectorsFor(len(payload)))
	frame := at.segment.frame(nil, at.place, l.next, payload)
	for i := range at.sectors {
		if keep != nil && !keep(i) {
			continue
		}
		sector := frame[i*sectorSize : (i+1)*sectorSize]
		if _, failed := f.handle.WriteAt(sector, at.segment.offset(at.place+i)); failed != nil {
			err = failed
		}
	}
	return errors.Join(err, f.Close())
}

// AppendSector writes a sector in the place of the next record, which claims that it and those
// behind it have that many bytes of its payload.
func AppendSector(path string, left uint32) error {
	f, err := Open(path, Options{NoSync: true}, Unread{})
	if err != nil {
		return err
	}
	l := &f.log
	s, place := l.filling, l.filling.place(l.lane(), l.filling.used[l.lane()])
	sector := s.frame(nil, place, l.next, make([]byte, sectorRoom))
	binary.BigEndian.PutUint32(sector[format.ChecksumSize:], left)
	binary.BigEndian.PutUint32(sector, s.checksum(place, sector))
	_, err = f.handle.WriteAt(sector, s.offset(place))
	return errors.Join(err, f.Close())
}

func OpenFile(path string, o Options) (*File, error) { return Open(path, o, Unread{}) }

func CreateInPlace(path string, o Options) error { return createInPlace(path, o) }

// MakeTables makes the tables of a new file.
func MakeTables(tx *bbolt.Tx) error { return makeTables(tx) }

type RowWrite = format.Write

// Write is a change of a row; a nil value deletes it.
func Write(table byte, key string, value []byte) RowWrite {
	return RowWrite{Table: table, Key: key, Value: value}
}

func (f *File) Load(visit func(table byte, key string, value []byte) error) (uint64, error) {
	found, err := inspect(f.handle, &rowVisitor{RowFuncs: RowFuncs{func() {}, visit}})
	return found.last.index, err
}

// Unread is a Reader that looks at no row.
type Unread struct{}

func (Unread) Begin(uint64, format.Tally) {}

func (Unread) Rows(byte, *format.Chunk) {}

func (Unread) End() error { return nil }

// RowFuncs is a Reader of functions.
type RowFuncs struct {
	Reset func()
	Row   func(table byte, key string, value []byte) error
}

// rowVisitor is a Reader that calls its functions.
type rowVisitor struct {
	RowFuncs
	err error
}

func (r *rowVisitor) Begin(uint64, format.Tally) {
	r.err = nil
	r.Reset()
}

func (r *rowVisitor) Rows(table byte, c *format.Chunk) {
	for i := range c.Len() {
		if row, keySize := c.At(i); r.err == nil {
			r.err = r.Row(table, string(row[:keySize]), bytes.Clone(row[keySize:]))
		}
	}
}

func (r *rowVisitor) End() error { return r.err }

// ReadFile is OpenFile that reads the rows.
func ReadFile(path string, o Options, rows RowFuncs) (*File, error) {
	return Open(path, o, &rowVisitor{RowFuncs: rows})
}

// CommitRows commits the rows, and leaves their tally empty.
func (f *File) CommitRows(index uint64, rows ...RowWrite) error {
	return f.Commit(rows, index, format.Tally{})
}

func (f *File) CheckPath(path string) error {
	info, err := f.handle.Stat()
	return errors.Join(err, checkPath(path, info))
}

// With these sizes a few commits go through everything that happens to a log. The first segment is
// much smaller than the later ones here too.
func init() {
	firstSegment, leastSegment = 16<<10, 64<<10
	stepSectors, stepRows, manyRows = 4, 4, 64
}

// LogSizes are the sizes of a log's segments, in bytes: see log.go.
type LogSizes struct{ First, Least, Row, Most int }

// SetLogSizes sets the sizes for all files. The function that it returns restores the old sizes.
func SetLogSizes(s LogSizes) (restore func()) {
	before := LogSizes{firstSegment, leastSegment, rowSegment, mostSegment}
	set := func(s LogSizes) {
		firstSegment, leastSegment, rowSegment, mostSegment = s.First, s.Least, s.Row, s.Most
	}
	set(s)
	return func() { set(before) }
}

// LogState describes the log of a file.
type LogState struct {
	Segments int    // bytes of both; 0: there is no log
	First    uint64 // the number of the first record that counts
	Next     uint64 // the number of the next record
	Rows     int    // of the records that count
	Taken    int    // rows of the older segment that are in their tables
	Cut      bool   // there is a record that a crash has cut off
	Head     RecordHead
}

// Records is how many records were ever written to it.
func (l LogState) Records() uint64 { return max(l.Next, 1) - 1 }

// ReadLog returns the state of the file's log.
func ReadLog(path string) (state LogState, err error) {
	f, err := Open(path, Options{NoSync: true}, Unread{})
	if err != nil {
		return state, err
	}
	l := &f.log
	state = LogState{Taken: l.total - len(l.left), Cut: l.cut != nil, Next: l.next}
	state.Rows = len(l.list(nil)) + state.Taken
	state.Head = RecordHead{f.last.index, f.last.tally.Rows, f.last.tally.Sum}
	if !l.none() {
		state.First = l.after(len(l.left)).first
		for _, s := range l.segments {
			state.Segments += lanes * s.stride * sectorSize
		}
	}
	if l.settled != nil {
		state.First = l.settled.first
	}
	return state, f.Close()
}

// EmptySector is what the log has at that place of a segment before a record is written there.
func EmptySector(segmentNumber byte, place int) []byte {
	return (&segment{number: segmentNumber}).blank(nil, place, 1)
}

// Bounds are keys from the first one to before the other; nil is no bound.
type Bounds [2][]byte

// FindLost returns a function that reports whether a key is lost.
func FindLost(lost []Bounds) func(key []byte) bool {
	var all []bounds
	for _, b := range lost {
		all = append(all, bounds{b[0], b[1]})
	}
	all = merged(all)
	return func(key []byte) bool { return within(all, key) }
}
