package store

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"time"

	"go.etcd.io/bbolt"
)

// Rows is the codec of one table's rows.
type Rows[T any] struct {
	Table byte
	codec codec[T]
}

var (
	KeyRows        = Rows[Key]{tableKeys, keyCodec}
	SessionRows    = Rows[Session]{tableSessions, sessionCodec}
	NodeRows       = Rows[Node]{tableNodes, nodeCodec}
	ServiceRows    = Rows[Service]{tableServices, serviceCodec}
	CheckRows      = Rows[Check]{tableChecks, checkCodec}
	AttachmentRows = Rows[Attachment]{tableAttachments, attachmentCodec}
	DelayRows      = Rows[Delay]{tableDelays, delayCodec}
	GraveRows      = Rows[Grave]{tableGraves, graveCodec}
	MarkRows       = Rows[Mark]{tableMarks, markCodec}
)

func (r Rows[T]) Append(buf []byte, key string, row T) []byte {
	return appendRow(buf, r.Table, key, r.codec, &row)
}

func (r Rows[T]) Decode(key string, value []byte) (T, error) {
	return decodeRow(r.Table, key, r.codec, value)
}

// Seal returns the payload with the checksum that makes it the value of the key.
func (r Rows[T]) Seal(key string, payload []byte) []byte {
	value := append([]byte(nil), payload...)
	return binary.BigEndian.AppendUint32(value, checksum(r.Table, []byte(key), payload))
}

// In returns the same codec for another table.
func (r Rows[T]) In(table byte) Rows[T] { return Rows[T]{table, r.codec} }

// The header's place in the file.
const (
	HeaderBucket = headerBucket
	HeaderKey    = headerKey
)

// HeaderValue is the header of a file of any version of the format, without rows.
func HeaderValue(version, commit, index uint64) []byte {
	row := header{version: version, commit: commit, index: index}
	return appendRow(nil, headerTable, headerKey, headerCodec, &row)
}

// LoggedHeader is the header of a file with a log, and with keys that have these values.
func LoggedHeader(commit uint64, values ...[]byte) []byte {
	row := header{version: logVersion, commit: commit, index: 5}
	for _, value := range values {
		row.tally.add(storedChecksum(value))
	}
	return appendRow(nil, headerTable, headerKey, headerCodec, &row)
}

// Record is that payload as a record of the log.
func Record(number uint64, payload string) []byte {
	sum := checksum(logTable, recordKey(number), []byte(payload))
	return binary.BigEndian.AppendUint32([]byte(payload), sum)
}

// ReadRecord returns the rows of a record with that payload.
func ReadRecord(payload []byte) ([]RowWrite, error) {
	const number = 1
	l := newLogged()
	record := element{key: recordKey(number), value: Record(number, string(payload))}
	if err := l.read(record, number); err != nil {
		return nil, err
	}
	return l.list(), nil
}

// RecordOf returns the payload of the record of the rows.
func RecordOf(rows []RowWrite) ([]byte, error) {
	record, _, err := makeRecord(rows, 1, recordSize(rows))
	return record[:max(0, len(record)-checksumSize)], err
}

// TableName is the name of the table's bucket.
func TableName(table byte) string { return tableName(table) }

type File = file

// FileOptions is fileOptions with names that a test can use.
type FileOptions struct {
	Timeout time.Duration
	Mode    fs.FileMode
	Sync    SyncPolicy
	Hooks   Hooks

	AllowNetworkFS bool
}

func (o FileOptions) options() fileOptions {
	return fileOptions{
		timeout: o.Timeout, mode: o.Mode, sync: o.Sync, hooks: o.Hooks,
		allowNetworkFS: o.AllowNetworkFS,
	}
}

func OpenFile(path string, o FileOptions) (*File, error) { return openFile(path, o.options(), nil) }

// CopyFile copies a file as Compact does it, and calls between when it was read for the first time.
func CopyFile(path, other string, between, publish func() error) error {
	rows, o := New(), fileOptions{sync: SyncNever}
	f, err := rows.load(path, o)
	if err != nil {
		return err
	}
	last := header{version: plainVersion, index: rows.index, tally: rows.inFile}
	if err = between(); err == nil {
		err = f.copyTo(other, o, f.info, last, publish)
	}
	return errors.Join(err, f.close())
}

func CreateInPlace(path string, o FileOptions) error { return createInPlace(path, o.options()) }

// Fill writes what a new file has.
func Fill(tx *bbolt.Tx) error { return fill(tx) }

type RowWrite = rowWrite

// Write is a change of a row; a nil value deletes it.
func Write(table byte, key string, value []byte) RowWrite { return RowWrite{table, key, value} }

func (f *file) Load(visit func(table byte, key string, value []byte) error) (uint64, error) {
	found, err := inspect(f.handle, &rowVisitor{Reader: Reader{func() {}, visit}})
	return found.last.index, errors.Join(err, found.err)
}

// Reader is a rowReader of functions.
type Reader struct {
	Begin func()
	Row   func(table byte, key string, value []byte) error
}

// rowVisitor is a rowReader that calls a Reader.
type rowVisitor struct {
	Reader
	err error
}

func (r *rowVisitor) begin(header) {
	r.err = nil
	r.Begin()
}

func (r *rowVisitor) leaf(table byte, content []byte) {
	for i := range elementCount(content) {
		if e := elementAt(content, i); r.err == nil {
			r.err = r.Row(table, string(e.key), e.value)
		}
	}
}

func (r *rowVisitor) end() error { return r.err }

// ReadFile is OpenFile that reads the rows.
func ReadFile(path string, o FileOptions, reader Reader) (*File, error) {
	return openFile(path, o.options(), &rowVisitor{Reader: reader})
}

// Commit leaves the tally of the rows at none.
func (f *file) Commit(index uint64, rows ...RowWrite) error {
	return f.commit(rows, 0, header{index: index})
}

func (f *file) Index() (uint64, error) { return f.index() }

func (f *file) Close() error { return f.close() }

func (f *file) CheckPath(path string) error { return f.checkPath(path) }
