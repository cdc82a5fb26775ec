package file

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/store/internal/format"
)

// A backup is a stream that does not depend on the machine or on bbolt. It has what outlives a
// restore: keys, nodes, services and checks. The README of package store describes it byte by byte.
const (
	backupMagic   = "lockd backup"
	backupVersion = 1
	sealByte      = 0xff
)

// maxBackupValue is more than any row of a backup takes.
const maxBackupValue = 1 << 30

// Backup is what a stream holds. Its rows are as they were: with the locks of that time.
type Backup struct {
	Index    uint64
	Keys     []schema.Key
	Nodes    []schema.Node
	Services []schema.Service
	Checks   []schema.Check
}

// BackupWriter writes and sums.
type BackupWriter struct {
	to   *bufio.Writer // keeps the first error
	sum  hash.Hash
	rows uint64
	head []byte // the last row up to its value, to be used again
}

// NewBackup begins a backup of a state with that index.
func NewBackup(w io.Writer, index uint64) *BackupWriter {
	b := &BackupWriter{to: bufio.NewWriter(w), sum: sha256.New()}
	_ = b.write([]byte(backupMagic), []byte{backupVersion}, binary.AppendUvarint(nil, index))
	return b
}

// Row writes the next row in order, unless backups leave out its table, and reports whether more
// rows can be written.
func (b *BackupWriter) Row(row format.Write) bool {
	if !inBackup(row.Table) {
		return true
	}
	b.head = format.AppendString(append(b.head[:0], row.Table), row.Key)
	b.head = binary.AppendUvarint(b.head, uint64(len(row.Value)))
	b.rows++
	return b.write(b.head, row.Value) == nil
}

// End ends the backup, and returns the first error of its writer's Write.
func (b *BackupWriter) End() error {
	_ = b.write(binary.AppendUvarint([]byte{sealByte}, b.rows))
	_ = b.write(b.sum.Sum(nil))
	return b.to.Flush()
}

// write writes and sums the pieces. After an error, every write and the Flush return that error.
func (b *BackupWriter) write(pieces ...[]byte) (err error) {
	for _, piece := range pieces {
		_, err = b.to.Write(piece)
		b.sum.Write(piece) // never fails
	}
	return err
}

// ReadBackup is store.ReadBackup.
func ReadBackup(r io.Reader) (*Backup, error) {
	b := &backupReader{from: bufio.NewReader(r), sum: sha256.New()}
	backup, err := b.read()
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = corrupt("it is cut off after %d bytes", b.offset)
	}
	if err != nil {
		return nil, fmt.Errorf("read backup: %w", err)
	}
	return backup, nil
}

// backupReader reads and sums. It trusts no length that it reads.
type backupReader struct {
	from   *bufio.Reader
	sum    hash.Hash
	offset int64
}

// ReadByte implements [io.ByteReader], for varints.
func (b *backupReader) ReadByte() (byte, error) {
	c, err := b.from.ReadByte()
	if err == nil {
		b.offset++
		b.sum.Write([]byte{c})
	}
	return c, err
}

// number reads a varint, which has one form.
func (b *backupReader) number() (uint64, error) {
	start := b.offset
	n, err := binary.ReadUvarint(b)
	switch used := int(b.offset - start); {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return 0, err
	case err != nil && used == binary.MaxVarintLen64,
		err == nil && used != len(binary.AppendUvarint(nil, n)):
		return 0, b.corrupt("%w", format.ErrNumber)
	}
	return n, err
}

func (b *backupReader) bytes(limit uint64) ([]byte, error) {
	n, err := b.number()
	if err != nil {
		return nil, err
	}
	if n > limit {
		return nil, b.corrupt("a length of %d is more than %d", n, limit)
	}
	return b.take(int64(n))
}

func (b *backupReader) take(n int64) ([]byte, error) {
	var read bytes.Buffer // grows with what is there, not with what is claimed
	got, err := io.CopyN(io.MultiWriter(&read, b.sum), b.from, n)
	b.offset += got
	return read.Bytes(), err
}

func (b *backupReader) corrupt(text string, args ...any) error {
	return corrupt("near byte %d: "+text, append([]any{b.offset}, args...)...)
}

func (b *backupReader) read() (*Backup, error) {
	head, err := b.take(int64(len(backupMagic) + 1))
	if !bytes.HasPrefix(head, []byte(backupMagic)[:min(len(head), len(backupMagic))]) {
		return nil, fmt.Errorf("%w: it is not a backup", ErrFormat)
	}
	if err != nil {
		return nil, err
	}
	if version := head[len(backupMagic)]; version != backupVersion {
		return nil, fmt.Errorf("%w: it is of version %d, this program reads %d", ErrFormat,
			version, backupVersion)
	}
	backup := &Backup{}
	if backup.Index, err = b.number(); err != nil {
		return nil, err
	}
	if backup.Index < schema.FirstIndex || backup.Index >= lastLimit {
		return nil, b.corrupt("its index is %d, not from %d to %d", backup.Index, schema.FirstIndex,
			uint64(lastLimit-1))
	}
	return backup, b.rows(backup)
}

func (b *backupReader) rows(backup *Backup) error {
	rows, last := uint64(0), ""
	for {
		table, err := b.ReadByte()
		if err != nil {
			return err
		}
		if table == sealByte {
			return b.seal(rows)
		}
		key, err := b.bytes(schema.KeyLimit)
		if err != nil {
			return err
		}
		value, err := b.bytes(maxBackupValue)
		if err != nil {
			return err
		}
		if place := string([]byte{table}) + string(key); rows > 0 && place <= last {
			return b.corrupt("row %.100q is not in its place", key)
		} else {
			last = place
		}
		if err := backup.add(table, string(key), value); err != nil {
			return err
		}
		rows++
	}
}

// seal checks the end of the stream.
func (b *backupReader) seal(rows uint64) error {
	claimed, err := b.number()
	if err != nil {
		return err
	}
	if claimed != rows {
		return b.corrupt("it has %d rows, not %d", rows, claimed)
	}
	want := b.sum.Sum(nil)
	got, err := b.take(int64(len(want)))
	if err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return b.corrupt("the checksum of the whole does not fit")
	}
	switch _, err := b.from.ReadByte(); {
	case err == nil:
		return b.corrupt("it goes on after its end")
	case !errors.Is(err, io.EOF):
		return err
	}
	return nil
}

// inBackup reports whether a backup has the rows of the table.
func inBackup(table byte) bool {
	switch table {
	case format.KeyRows.Table, format.NodeRows.Table, format.ServiceRows.Table,
		format.CheckRows.Table:
		return true
	}
	return false
}

// add adds a row.
func (backup *Backup) add(table byte, key string, value []byte) error {
	switch table {
	case format.KeyRows.Table:
		return addTo(&backup.Keys, &format.KeyRows, key, value)
	case format.NodeRows.Table:
		return addTo(&backup.Nodes, &format.NodeRows, key, value)
	case format.ServiceRows.Table:
		return addTo(&backup.Services, &format.ServiceRows, key, value)
	case format.CheckRows.Table:
		return addTo(&backup.Checks, &format.CheckRows, key, value)
	}
	return corrupt("row %.100q is of the unknown table %d", key, table)
}

func addTo[T any](list *[]T, rows *format.Rows[T], key string, value []byte) error {
	row, err := rows.Decode(key, value)
	if err == nil {
		*list = append(*list, row)
	}
	return err
}
