package lockdui_test

import (
	"context"
	"errors"
	"html"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/lockdtest"
	"github.com/lockd/lockd/lockdui"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	goleak.VerifyTestMain(m)
}

// harness is the pages of a database on a mock clock, inside a bubble: the clock begins at the
// beginning of Unix time, and nothing has to be slept for.
type harness struct {
	*lockdtest.DB
	http.Handler
	t *testing.T
}

// run runs the test on pages with these options. Setup runs before they are mounted.
func run(t *testing.T, opts *lockdui.Options, setup, test func(h *harness)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := &harness{t: t, DB: lockdtest.New(t, nil)}
		if setup != nil {
			setup(h)
		}
		h.mount(opts)
		test(h)
	})
}

// mount makes the pages of the database.
func (h *harness) mount(opts *lockdui.Options) {
	h.t.Helper()
	options := lockdui.Options{}
	if opts != nil {
		options = *opts
	}
	options.Now = h.Now
	var err error
	h.Handler, err = lockdui.Handler(h.DB.DB, &options)
	h.must(err)
}

func (h *harness) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// reply is the answer to a request.
type reply struct {
	code   int
	body   string
	header http.Header
}

// words returns the text of the page, with one space for each run of white space.
func (r reply) words() string { return words(r.body) }

var (
	tag   = regexp.MustCompile(`<[^>]*>`)
	space = regexp.MustCompile(`[\s\x{202f}]+`)
)

func words(page string) string {
	return space.ReplaceAllString(html.UnescapeString(tag.ReplaceAllString(page, " ")), " ")
}

// request returns a request as a program sends it, without the headers of a browser.
func request(method, target string, form url.Values) *http.Request {
	r := httptest.NewRequest(method, "http://localhost"+target, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return r
}

// do sends a request, after all goroutines of the bubble have come to rest.
func (h *harness) do(r *http.Request) reply {
	h.t.Helper()
	synctest.Wait()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return reply{w.Code, w.Body.String(), w.Header()}
}

// get returns a page, which must be there.
func (h *harness) get(target string) reply {
	h.t.Helper()
	r := h.do(request("GET", target, nil))
	if r.code != http.StatusOK {
		h.t.Fatalf("%s: %d %s", target, r.code, r.body)
	}
	return r
}

// shows fails the test unless the page has these words, in this order.
func (h *harness) shows(target string, texts ...string) reply {
	h.t.Helper()
	r := h.get(target)
	inOrder(h.t, target, r.words(), texts...)
	return r
}

func inOrder(t *testing.T, what, text string, wanted ...string) {
	t.Helper()
	rest := text
	for _, want := range wanted {
		_, after, ok := strings.Cut(rest, want)
		if !ok {
			t.Fatalf("%s: %q is not there, or not in its place, in:\n%s", what, want, text)
		}
		rest = after
	}
}

// hides fails the test if the page has one of these words.
func (h *harness) hides(target string, texts ...string) {
	h.t.Helper()
	r := h.get(target)
	for _, text := range texts {
		if strings.Contains(r.words(), text) {
			h.t.Errorf("%s: %q is there, in:\n%s", target, text, r.words())
		}
	}
}

// session makes a session with the default options.
func (h *harness) session(name string) *lockd.Session {
	h.t.Helper()
	s, err := h.NewSession(&lockd.SessionOptions{Name: name})
	h.must(err)
	return s
}

// holds makes a session that holds the locks.
func (h *harness) holds(name string, keys ...string) *lockd.Session {
	h.t.Helper()
	s := h.session(name)
	for _, key := range keys {
		_, err := s.TryLock(key, nil)
		h.must(err)
	}
	return s
}

// waits has the session wait for the lock, behind the calls that wait already.
func (h *harness) waits(s *lockd.Session, key string) {
	h.t.Helper()
	go func() {
		if _, err := s.Lock(h.t.Context(), key, nil); err != nil &&
			!errors.Is(err, context.Canceled) && !errors.Is(err, lockd.ErrNoSession) {
			h.t.Error(err)
		}
	}()
	synctest.Wait()
}

// stream is a page that is followed.
type stream struct {
	t      *testing.T
	events chan event
	leave  context.CancelFunc
	done   chan struct{}
	code   int
}

// event is what a stream sends.
type event struct{ id, kind, data string }

func (e event) words() string { return words(e.data) }

// follow asks for a page as a stream. The stream ends with the test, or by end.
func (h *harness) follow(target string) *stream {
	h.t.Helper()
	ctx, leave := context.WithCancel(h.t.Context())
	s := &stream{t: h.t, events: make(chan event, 100), leave: leave, done: make(chan struct{})}
	r := request("GET", target, nil).WithContext(ctx)
	r.Header.Set("Accept", "text/event-stream")
	go func() {
		defer close(s.done)
		h.ServeHTTP(&streamWriter{header: make(http.Header), stream: s}, r)
	}()
	h.t.Cleanup(s.end)
	return s
}

// end leaves the stream, and returns when its request is over.
func (s *stream) end() {
	s.leave()
	<-s.done
}

// next returns the next event. If none comes for long, it fails the test.
func (s *stream) next() event {
	s.t.Helper()
	select {
	case e := <-s.events:
		return e
	case <-s.done:
		s.t.Fatalf("the stream is over, with status %d", s.code)
	case <-time.After(time.Hour): // of the bubble
		s.t.Fatal("the stream says nothing")
	}
	panic("unreachable")
}

// view returns the next event that has a part of the page.
func (s *stream) view() event {
	s.t.Helper()
	for range 100 {
		if e := s.next(); e.kind == "view" {
			return e
		}
	}
	s.t.Fatal("the page does not change")
	panic("unreachable")
}

// idle fails the test if there is an event that was not read.
func (s *stream) idle() {
	s.t.Helper()
	synctest.Wait()
	select {
	case e := <-s.events:
		s.t.Fatalf("not expected: %s %s", e.kind, e.words())
	default:
	}
}

// streamWriter splits the answer of a stream into events.
type streamWriter struct {
	header http.Header
	stream *stream
	rest   string
}

func (w *streamWriter) Header() http.Header { return w.header }

func (w *streamWriter) WriteHeader(code int) { w.stream.code = code }

func (w *streamWriter) Write(p []byte) (int, error) {
	w.rest += string(p)
	return len(p), nil
}

// FlushError passes on the events that are complete.
func (w *streamWriter) FlushError() error {
	for {
		text, rest, ok := strings.Cut(w.rest, "\n\n")
		if !ok {
			return nil
		}
		w.rest = rest
		var e event
		var data []string
		for line := range strings.SplitSeq(text, "\n") {
			name, value, _ := strings.Cut(line, ": ")
			switch name {
			case "id":
				e.id = value
			case "event":
				e.kind = value
			case "data":
				data = append(data, value)
			}
		}
		e.data = strings.Join(data, "\n")
		if e.kind != "" {
			w.stream.events <- e
		}
	}
}
