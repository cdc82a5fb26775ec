package consulapi

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"io"
	"math"
	"net/http"

	"github.com/lockd/lockd"
)

func (h *handler) snapshotRoutes() map[string][]method {
	return map[string][]method{
		"snapshot": {
			{http.MethodGet, h.snapshotSave},
			{http.MethodPut, h.snapshotRestore},
		},
	}
}

// snapshotSave answers with the state that is published, as an archive of Consul's.
func (h *handler) snapshotSave(*request) (answer, error) {
	state := h.db.Snapshot()
	return answer{
		read: true, index: state.Index(), contentType: "application/x-gzip",
		stream: func(w io.Writer) error { return h.writeSnapshot(w, state) },
	}, nil
}

// writeSnapshot writes the archive of a state. The state is encoded twice: its length comes first
// in the archive, and it is not kept in memory.
func (h *handler) writeSnapshot(w io.Writer, state *lockd.Snapshot) error {
	var size counter
	if err := writeState(&size, state, h.opts.Datacenter); err != nil {
		return err
	}
	return h.compressor.zip(w, func(w io.Writer) error {
		pieces := bufio.NewWriterSize(w, pieceSize)
		err := writeArchive(pieces, state.Index(), int64(size), func(w io.Writer) error {
			return writeState(w, state, h.opts.Datacenter)
		})
		return cmp.Or(err, pieces.Flush())
	})
}

// counter counts what is written.
type counter int64

// Write counts.
func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// snapshotRestore brings a snapshot back over the database, and then the node of this process,
// which the snapshot may be without.
func (h *handler) snapshotRestore(r *request) (answer, error) {
	most := h.opts.MaxSnapshotSize
	backup, err := readSnapshot(http.MaxBytesReader(nil, r.Body, most), most)
	if err == nil {
		err = h.db.Restore(backup)
	}
	if _, tooLong := errors.AsType[*http.MaxBytesError](err); tooLong {
		return answer{}, refuse(http.StatusRequestEntityTooLarge,
			"Request body too large, max size: %d bytes.", most)
	}
	if err == nil {
		err = h.register()
	}
	return answer{}, err
}

// ReadSnapshot returns the backup, for lockd.Restore and lockd.DB.Restore, that a snapshot is: one
// that GET /v1/snapshot has answered with, here or on a server of Consul's. Of the latter it has
// the keys with their values and flags, the nodes, services and checks, and nothing else. A backup,
// as lockd.DB.Backup writes it, is returned as it is.
//
// An archive is read whole and checked before ReadSnapshot returns, and what it has is kept in
// memory. It returns lockd.ErrCorrupt for one that is damaged, lockd.ErrInvalid for one that has
// what lockd takes nowhere, such as a key that is too long, and the errors of r's Read. Anything
// else is taken for a backup, which lockd.Restore checks.
func ReadSnapshot(r io.Reader) (backup io.Reader, err error) {
	return readSnapshot(r, math.MaxInt64)
}

// readSnapshot is ReadSnapshot of an archive that unpacks to so many bytes at most.
func readSnapshot(r io.Reader, most int64) (io.Reader, error) {
	const gzipMagic = "\x1f\x8b"
	from := bufio.NewReader(r)
	begin, err := from.Peek(len(gzipMagic))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if string(begin) != gzipMagic {
		return from, nil
	}
	var backup bytes.Buffer
	err = readArchive(from, most, func(state io.Reader) error {
		return readState(state, &backup)
	})
	if err != nil {
		return nil, err
	}
	return &backup, nil
}
