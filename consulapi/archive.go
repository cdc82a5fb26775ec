package consulapi

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/lockd/lockd"
)

// A snapshot of Consul's is a gzipped tar archive of these files: what Raft knows of the state, the
// state, and the checksums of both as the command sha256sum writes them.
const (
	archiveMeta  = "meta.json"
	archiveState = "state.bin"
	archiveSums  = "SHA256SUMS"
)

// maxSums is more bytes than any file of checksums has, with room for other forms of the file.
const maxSums = 1 << 12

// snapshotMeta is what Raft knows of the state. There is no Raft here, so every field except the
// index and the size says as little as Consul accepts.
type snapshotMeta struct {
	Version            int
	ID                 string
	Index, Term        uint64
	Peers              []byte
	Configuration      struct{ Servers []struct{} }
	ConfigurationIndex uint64
	Size               int64
}

// writeArchive writes the archive of a state. write writes the state itself, of size bytes. The
// same state always gives the same archive, byte for byte.
func writeArchive(w io.Writer, index uint64, size int64, write func(w io.Writer) error) error {
	files := tar.NewWriter(w)
	var sums bytes.Buffer
	add := func(name string, size int64, write func(w io.Writer) error) error {
		if err := files.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: size}); err != nil {
			return err
		}
		sum := sha256.New()
		if err := write(io.MultiWriter(files, sum)); err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sum.Sum(nil), name)
		return nil
	}
	whole := func(content []byte) func(w io.Writer) error {
		return func(w io.Writer) error { _, err := w.Write(content); return err }
	}
	meta, err := json.Marshal(snapshotMeta{
		Version: 1, ID: fmt.Sprintf("1-%d", index), Index: index, Term: 1, Size: size,
	})
	if err == nil {
		err = add(archiveMeta, int64(len(meta)), whole(meta))
	}
	if err == nil {
		err = add(archiveState, size, write)
	}
	if err == nil {
		err = add(archiveSums, int64(sums.Len()), whole(slices.Clone(sums.Bytes())))
	}
	if err != nil {
		return err
	}
	return files.Close()
}

// readArchive reads an archive, and calls read for the state in it. The result of read counts only
// if readArchive returns nil: the checksums come after the state. It returns ErrCorrupt if r is
// damaged or not such an archive, ErrInvalid if read does, the errors of r.Read, and a
// MaxBytesError for an archive that unpacks to more than most bytes.
func readArchive(r io.Reader, most int64, read func(state io.Reader) error) error {
	from := &source{Reader: r}
	err := readFiles(from, most, read)
	_, tooLong := errors.AsType[*http.MaxBytesError](err)
	switch {
	case err == nil, tooLong:
		return err
	case from.err != nil:
		return from.err
	case errors.Is(err, lockd.ErrCorrupt), errors.Is(err, lockd.ErrInvalid):
		return err
	}
	return fmt.Errorf("%w: read snapshot: %w", lockd.ErrCorrupt, err)
}

// source is a reader that keeps its error.
type source struct {
	io.Reader
	err error
}

// Read reads, and keeps the error unless it is io.EOF.
func (s *source) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

func readFiles(r io.Reader, most int64, read func(state io.Reader) error) error {
	unzipped, err := gzip.NewReader(r)
	if err != nil {
		return err
	}
	plain := http.MaxBytesReader(nil, unzipped, most)
	files := tar.NewReader(plain)
	var sums []string // of the files that were read; each has to be one of the lines
	var lines string
	seen := make(map[string]bool)
	for {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if seen[header.Name] {
			return fmt.Errorf("it has %s twice", header.Name)
		}
		seen[header.Name] = true
		sum := sha256.New()
		content := io.TeeReader(files, sum)
		switch header.Name {
		case archiveMeta:
			_, err = io.Copy(io.Discard, content)
		case archiveState:
			err = read(content)
		case archiveSums:
			var all []byte
			all, err = io.ReadAll(io.LimitReader(content, maxSums))
			lines = string(all)
		default:
			err = fmt.Errorf("it has a file %.100q", header.Name)
		}
		if err != nil {
			return err
		}
		if header.Name != archiveSums {
			sums = append(sums, fmt.Sprintf("%x  %s", sum.Sum(nil), header.Name))
		}
	}
	if _, err := io.Copy(io.Discard, plain); err != nil { // the checksum of gzip is at the end
		return err
	}
	if !seen[archiveMeta] || !seen[archiveState] {
		return fmt.Errorf("it lacks %s or %s", archiveMeta, archiveState)
	}
	for _, sum := range sums {
		if !slices.Contains(strings.Split(lines, "\n"), sum) {
			return fmt.Errorf("the checksum of %s does not fit", sum[2*sha256.Size+2:])
		}
	}
	return nil
}
