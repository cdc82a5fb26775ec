package consulapi

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/catalog"
)

// status is a row of the table that gives an error of the database its HTTP status.
type status struct {
	err  error
	code int
}

// statuses returns that table. It has every error that lockd exports. The first row that errors.Is
// finds counts: the reasons to refuse a call stand before the causes of an end. Consul answers most
// mistakes of a client with 500, and its clients know that (X30).
func statuses() []status {
	return []status{
		{lockd.ErrInvalid, http.StatusBadRequest},
		{lockd.ErrCorrupt, http.StatusBadRequest}, // a snapshot that was sent
		{lockd.ErrFormat, http.StatusBadRequest},
		{lockd.ErrConflict, http.StatusConflict},
		{lockd.ErrNoSession, http.StatusInternalServerError},
		{lockd.ErrNotHeld, http.StatusConflict},
		{catalog.ErrNoNode, http.StatusInternalServerError},
		{catalog.ErrNoService, http.StatusInternalServerError},
		{catalog.ErrNoCheck, http.StatusInternalServerError},
		{catalog.ErrCheckCritical, http.StatusInternalServerError},

		{lockd.ErrClosed, http.StatusInternalServerError},
		{lockd.ErrFailed, http.StatusInternalServerError},
		{lockd.ErrCommit, http.StatusInternalServerError},
		{lockd.ErrInUse, http.StatusInternalServerError},
		{lockd.ErrCompacted, http.StatusInternalServerError},

		{lockd.ErrExpired, http.StatusInternalServerError},
		{lockd.ErrDestroyed, http.StatusInternalServerError},
		{catalog.ErrNodeGone, http.StatusInternalServerError},
		{catalog.ErrCheckGone, http.StatusInternalServerError},
		{lockd.ErrProcessGone, http.StatusInternalServerError},
		{lockd.ErrRestored, http.StatusInternalServerError},
		{lockd.ErrUnlocked, http.StatusInternalServerError},
		{lockd.ErrKeyDeleted, http.StatusInternalServerError},
		{lockd.ErrForced, http.StatusInternalServerError},
		{lockd.ErrHeldTooLong, http.StatusInternalServerError},
	}
}

// failure is an error with the text that Consul has for it and, unless the table decides, a status.
type failure struct {
	code int   // 0: the table decides
	err  error // nil: a mistake in the request itself
	text string
}

// Error returns the text.
func (f *failure) Error() string { return f.text }

// Unwrap returns the error of the database, if there is one.
func (f *failure) Unwrap() error { return f.err }

// badRequest is refuse with 400, and a text that begins as most of Consul's do (H19).
func badRequest(format string, args ...any) error {
	return refuse(http.StatusBadRequest, "Bad request: "+format, args...)
}

// refuse returns the error for a mistake in the request, with its own status and text.
func refuse(code int, format string, args ...any) error {
	return &failure{code: code, text: fmt.Sprintf(format, args...)}
}

// reword gives an error of the database the text that Consul has for it where it happened. The
// table still decides the status.
func reword(err error, format string, args ...any) error {
	return &failure{err: err, text: fmt.Sprintf(format, args...)}
}

// failed returns the answer for an error.
func failed(err error) answer {
	code, text := http.StatusInternalServerError, err.Error()
	for _, row := range statuses() {
		if errors.Is(err, row.err) {
			code = row.code
			break
		}
	}
	if f, ok := errors.AsType[*failure](err); ok {
		if text = f.text; f.code != 0 {
			code = f.code
		}
	} else if code == http.StatusBadRequest { // H19
		text = "Bad request: " + text
	}
	return answer{status: code, body: []byte(text), contentType: textPlain}
}

// mistake returns the error for a mistake in a request that Consul answers with 500 (X30).
func mistake(format string, args ...any) error {
	return refuse(http.StatusInternalServerError, format, args...)
}
