package lockdui

import (
	"bytes"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/lockd/lockd"
)

// handler serves the pages.
type handler struct {
	db     *lockd.DB
	opts   Options // complete
	now    func() time.Time
	views  map[string]view
	guard  guard
	secret [32]byte // of the tokens of actions
	roster *roster
	meter  meter
	memory bool // the database has no file

	streams atomic.Int64 // the number of streams that are being answered
}

// view makes the content of a page for one request. An error is a mistake in the request.
type view func(r *http.Request, now time.Time) (content, error)

// content is what one page shows. It is comparable by reflect.DeepEqual.
type content interface {
	// template returns the name of the page, and of the template that shows it.
	template() string
}

// answer writes a whole page.
func (h *handler) answer(w http.ResponseWriter, r *http.Request, status int, body content) {
	var out bytes.Buffer
	p := h.newPage(r, h.now(), body)
	p.Form = h.formToken(w, r)
	p.render(&out, "page")
	header := w.Header()
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Cache-Control", "no-store")
	header.Add("Vary", "Accept")
	w.WriteHeader(status)
	_, _ = w.Write(out.Bytes()) // the client may be gone, which is its own affair
}

// problem is the content of a page that says what went wrong.
type problem struct{ Title, Text string }

func (problem) template() string { return "problem" }
