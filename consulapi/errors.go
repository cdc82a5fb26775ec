package consulapi

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/lockd/lockd"
)

// statusOf returns the HTTP status for an error of the database. Consul answers most mistakes of a
// client with 500, and its clients know that (X30).
func statusOf(err error) int {
	is := func(target error) bool { return errors.Is(err, target) }
	switch {
	case is(lockd.ErrInvalid), is(lockd.ErrCorrupt), is(lockd.ErrFormat): // what was sent
		return http.StatusBadRequest
	case is(lockd.ErrConflict), is(lockd.ErrNotHeld):
		return http.StatusConflict
	}
	return http.StatusInternalServerError
}

// failure is an error with the text that Consul has for it and, unless statusOf decides, a status.
type failure struct {
	code int   // 0: statusOf decides
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

// reword gives an error of the database the text that Consul has for it where it happened. Its
// status stays.
func reword(err error, format string, args ...any) error {
	return &failure{err: err, text: fmt.Sprintf(format, args...)}
}

// failed returns the answer for an error.
func failed(err error) answer {
	code, text := statusOf(err), err.Error()
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
