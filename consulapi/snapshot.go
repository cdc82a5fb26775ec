package consulapi

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
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

// snapshotSave answers with the published state, as an archive in Consul's form.
func (h *handler) snapshotSave(r *request) (answer, error) {
	state := h.db.Snapshot()
	return answer{
		read: true, index: state.Index(), contentType: "application/x-gzip",
		stream: func(w io.Writer) error { return h.writeSnapshot(r.Context(), w, state) },
	}, nil
}

// writeSnapshot writes the archive of a state. The state is encoded twice: its length comes first
// in the archive, and the encoded state is not kept in memory. No write fails while the length is
// counted, so only ctx tells that the client is gone.
func (h *handler) writeSnapshot(ctx context.Context, w io.Writer, state *lockd.Snapshot) error {
	size := counter{ctx: ctx}
	if err := writeState(&size, state, h.opts.Datacenter); err != nil {
		return err
	}
	return h.compressor.zip(w, func(w io.Writer) error {
		pieces := bufio.NewWriterSize(w, pieceSize)
		err := writeArchive(pieces, state.Index(), size.bytes, func(w io.Writer) error {
			return writeState(w, state, h.opts.Datacenter)
		})
		return cmp.Or(err, pieces.Flush())
	})
}

// counter counts the bytes that are written, until ctx ends.
type counter struct {
	ctx   context.Context
	bytes int64
}

// Write counts, or returns the error of ctx.
func (c *counter) Write(p []byte) (int, error) {
	c.bytes += int64(len(p))
	return len(p), c.ctx.Err()
}

// snapshotRestore restores the database from a snapshot, and then registers the node of this
// process, which the snapshot may lack.
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

// ReadSnapshot turns a snapshot into a backup for lockd.Restore and lockd.DB.Restore. A snapshot is
// what GET /v1/snapshot answers with, here or on a Consul server. From Consul's the backup has the
// keys with their values and flags, the nodes, services and checks, and nothing else. A backup, as
// lockd.DB.Backup writes it, is returned as it is.
//
// An archive is read whole and checked before ReadSnapshot returns, and its content is kept in
// memory. ReadSnapshot returns lockd.ErrCorrupt for an archive that is damaged or has a node,
// service or check that lockd never accepts, lockd.ErrInvalid for one with such a key, as one that
// is too long, and the errors of r.Read. Input that is not gzipped is taken for a backup, which
// lockd.Restore checks.
func ReadSnapshot(r io.Reader) (backup io.Reader, err error) {
	return readSnapshot(r, math.MaxInt64)
}

// readSnapshot is ReadSnapshot of an archive that unpacks to at most most bytes.
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
