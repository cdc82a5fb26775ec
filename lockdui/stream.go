package lockdui

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"time"

	"github.com/lockd/lockd"
)

const (
	eventStream = "text/event-stream"

	// maxStreams is how many streams are answered at a time.
	maxStreams = 64

	// look is how often a stream looks for changes that have no event: calls that begin to wait or
	// give up, delays that are over, renewals. If there are none, the stream says that it is alive.
	look = time.Second

	// leastPause is the shortest pause between two pages of a stream, so that a person can read
	// them.
	leastPause = 50 * time.Millisecond

	// restFactor is the length of the pause after a page, in times of the making of the page, so
	// that a viewer takes a small part of one core, however many locks there are. A stream may owe
	// pauses of up to mostOwed, so that the first changes after a quiet time are shown at once.
	restFactor = 9
	mostOwed   = 5 * time.Second
)

// stream sends the page again whenever something on it has changed, until the client leaves. It
// begins with the whole page, so a client that comes back has caught up.
func (h *handler) stream(w http.ResponseWriter, r *http.Request, view view) {
	if h.streams.Add(1) > maxStreams {
		h.streams.Add(-1)
		http.Error(w, "too many streams", http.StatusTooManyRequests)
		return
	}
	defer h.streams.Add(-1)
	body, err := view(r, h.now())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", eventStream)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Add("Vary", "Accept")
	if r.Method == http.MethodHead {
		return
	}
	ctx, leave := context.WithCancel(r.Context())
	changes := h.changes(ctx, body)
	defer func() {
		leave()
		for range changes { // until the goroutine has ended
		}
	}()
	s := streaming{h: h, w: w, control: http.NewResponseController(w), r: r, view: view}
	_ = s.run(ctx, changes) // the client is gone, which is its own affair
}

// changes returns a channel that gets a value when something that the page may show has changed.
// The channel is closed when ctx and the goroutine that fills the channel have ended.
func (h *handler) changes(ctx context.Context, body content) <-chan struct{} {
	scope, every := lockd.PrefixScope(""), false
	if v, ok := body.(keyView); ok && v.Lock.Limit == 0 {
		scope, every = lockd.KeyScope(v.Lock.Key), true
	}
	changes := make(chan struct{}, 1)
	from := h.db.Stats().Index
	go func() {
		defer close(changes)
		for ctx.Err() == nil {
			for event, err := range h.db.Watch(ctx, scope, from) {
				granted := !event.Granted.ID.IsZero()
				if err == nil && !granted && event.Ended.ID.IsZero() && !every {
					continue // no grant has begun or ended, and the page shows no values
				}
				select {
				case changes <- struct{}{}:
				default: // no page was made since the last change: the next one shows both
				}
			}
			if h.db.Err() != nil {
				<-ctx.Done() // the database has ended: nothing will change
				return
			}
			from = h.db.Stats().Index // events were dropped; the page will show what they made
		}
	}()
	return changes
}

// streaming is the answer of one stream.
type streaming struct {
	h       *handler
	w       io.Writer
	control *http.ResponseController
	r       *http.Request
	view    view

	sent *page // nil: none yet
}

// run sends pages until ctx ends or the client does not take them.
func (s *streaming) run(ctx context.Context, changes <-chan struct{}) error {
	if _, err := io.WriteString(s.w, "retry: 1000\n\n"); err != nil {
		return err
	}
	looks := time.NewTicker(look)
	defer looks.Stop()
	pause := time.NewTimer(0)
	defer pause.Stop()
	var rested time.Time // when all pauses that the stream owes will be over
	for {
		news := s.h.roster.news() // before the page is made: the next page shows later news
		began := time.Now()
		if err := s.show(); err != nil {
			return err
		}
		took := time.Since(began)
		if rested.Before(began) {
			rested = began
		}
		rested = rested.Add((1 + restFactor) * took)
		pause.Reset(max(leastPause, rested.Sub(began)-took-mostOwed))
		select {
		case <-pause.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		select {
		case <-changes:
		case <-news:
		case <-looks.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// show sends the parts of the page that have changed, or says that the stream is alive.
func (s *streaming) show() error {
	now := s.h.now()
	body, err := s.view(s.r, now)
	if err != nil {
		return err
	}
	p := s.h.newPage(s.r, now, body)
	var parts []string
	if s.sent == nil || p.Head != s.sent.Head {
		parts = append(parts, "head")
	}
	if s.sent == nil || !reflect.DeepEqual(p.Body, s.sent.Body) {
		parts = append(parts, "main")
		if s.sent != nil {
			p.sent = rowsOf(s.sent.Body)
		}
	}
	s.sent = &p
	var html bytes.Buffer
	for _, part := range parts {
		p.render(&html, part)
	}
	return s.send(p.Head.Index, html.Bytes())
}

// send sends an event. Without html the event says only that the stream is alive.
func (s *streaming) send(index uint64, html []byte) error {
	var out bytes.Buffer
	kind := "view"
	if len(html) == 0 {
		kind = "alive"
	}
	fmt.Fprintf(&out, "id: %d\nevent: %s\n", index, kind)
	html = bytes.ReplaceAll(html, []byte("\r"), []byte(" ")) // a \r would end a line too
	for line := range bytes.SplitSeq(bytes.TrimSpace(html), []byte("\n")) {
		fmt.Fprintf(&out, "data: %s\n", line)
	}
	out.WriteByte('\n')
	if _, err := s.w.Write(out.Bytes()); err != nil {
		return err
	}
	return s.control.Flush()
}
