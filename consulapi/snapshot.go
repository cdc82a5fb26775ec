package consulapi

import (
	"errors"
	"net/http"
)

func (h *handler) snapshotRoutes() map[string][]method {
	return map[string][]method{
		"snapshot": {
			{http.MethodGet, h.snapshotSave},
			{http.MethodPut, h.snapshotRestore},
		},
	}
}

// snapshotSave answers with a backup of the database, in lockd's own form.
func (h *handler) snapshotSave(*request) (answer, error) {
	return answer{read: true, contentType: "application/octet-stream", stream: h.db.Backup}, nil
}

// snapshotRestore brings a backup back over the database, and then the node of this process, which
// the backup may be without.
func (h *handler) snapshotRestore(r *request) (answer, error) {
	err := h.db.Restore(http.MaxBytesReader(nil, r.Body, h.opts.MaxSnapshotSize))
	if _, tooLong := errors.AsType[*http.MaxBytesError](err); tooLong {
		return answer{}, refuse(http.StatusRequestEntityTooLarge,
			"Request body too large, max size: %d bytes.", h.opts.MaxSnapshotSize)
	}
	if err == nil {
		err = h.register()
	}
	return answer{}, err
}
