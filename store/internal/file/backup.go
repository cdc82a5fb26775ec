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
	"iter"

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

// WriteBackup writes a backup of a state with that index and those rows, which come in order. It
// leaves out the tables that no backup has. It returns the first error of w's Write, and takes no
// row after it.
func WriteBackup(w io.Writer, index uint64, rows iter.Seq[format.Write]) error {
	to, sum := bufio.NewWriter(w), sha256.New()
	write := func(piece []byte) error {
		sum.Write(piece) // never fails
		_, err := to.Write(piece)
		return err // which to returns from now on
	}
	head := append([]byte(backupMagic), backupVersion)
	_ = write(binary.AppendUvarint(head, index))
	count := uint64(0)
	for row := range rows {
		if !inBackup(row.Table) {
			continue
		}
		head = format.AppendString(append(head[:0], row.Table), row.Key)
		head = binary.AppendUvarint(head, uint64(len(row.Value)))
		_ = write(head)
		if write(row.Value) != nil {
			break
		}
		count++
	}
	_ = write(binary.AppendUvarint([]byte{sealByte}, count))
	_ = write(sum.Sum(nil))
	return to.Flush()
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
	rows := uint64(0)
	var last format.Write
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
		row := format.Write{Table: table, Key: string(key)}
		if rows > 0 && !last.Before(row) {
			return b.corrupt("row %.100q is not in its place", key)
		}
		if err := backup.add(table, row.Key, value); err != nil {
			return err
		}
		last, rows = row, rows+1
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
	return table == format.KeyRows.Table || table == format.NodeRows.Table ||
		table == format.ServiceRows.Table || table == format.CheckRows.Table
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
