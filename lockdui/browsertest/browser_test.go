package browsertest_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/chromedp/chromedp"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/lockdtest"
	"github.com/lockd/lockd/lockdui"
)

var images = flag.String("images", "", "`FOLDER` to write screenshots to")

// patience is how long a test waits for something to appear on a page. A loaded machine takes
// seconds to start a browser.
const patience = 30 * time.Second

// browser starts the browser that all tests share, or returns why it cannot.
var browser = sync.OnceValues(func() (context.Context, error) {
	var path string
	var err error
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err = exec.LookPath(name); err == nil {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoBrowser, err)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("hide-scrollbars", true), chromedp.WSURLReadTimeout(patience))
	ctx, _ := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, _ = chromedp.NewContext(ctx)
	_, err = chromedp.Run(ctx, chromedp.Evaluate[chromedp.Void]("0"))
	running = ctx
	return ctx, err
})

var running context.Context // of the browser; nil: no test has asked for it

func TestMain(m *testing.M) {
	flag.Parse()
	slog.SetDefault(slog.New(slog.DiscardHandler))
	code := m.Run()
	if running != nil {
		_ = chromedp.Cancel(running) // its folder goes with it
	}
	os.Exit(code)
}

var errNoBrowser = errors.New("no browser")

// tab opens a tab of the browser, and skips the test if none is installed.
func tab(t *testing.T) *page {
	t.Helper()
	ctx, err := browser()
	if errors.Is(err, errNoBrowser) {
		t.Skip(err)
	}
	must(t, err)
	ctx, cancel := chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	_, err = chromedp.Run(ctx, chromedp.Evaluate[chromedp.Void]("0")) // opens it
	must(t, err)
	return &page{t: t, ctx: ctx}
}

// page is a tab.
type page struct {
	t   *testing.T
	ctx context.Context
}

// run runs actions, which have to succeed.
func (p *page) run(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	must(p.t, chromedp.Do(p.ctx, actions...))
}

// eval returns the value of the script.
func eval[T any](p *page, script string) T {
	p.t.Helper()
	v, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](script))
	must(p.t, err)
	return v
}

// until waits until the script is true, on the page that is loaded then. An error of the script,
// while another page is being loaded, is not a failure.
func (p *page) until(script string) {
	p.t.Helper()
	var err error
	for began := time.Now(); time.Since(began) < patience; time.Sleep(5 * time.Millisecond) {
		var done bool
		done, err = chromedp.Run(p.ctx, chromedp.Evaluate[bool]("!!("+script+")"))
		if err == nil && done {
			return
		}
	}
	p.t.Fatalf("%s: %v; the page:\n%s", script, err, eval[string](p, `document.body.innerText`))
}

// open opens an address, and waits until the page is live.
func (p *page) open(url string) {
	p.t.Helper()
	p.run(chromedp.Navigate(url))
	p.until(`document.getElementById("stream").dataset.state === "live"`)
}

// site is a database on a mock clock and its pages.
type site struct {
	*lockdtest.DB
	t       *testing.T
	url     string
	server  *httptest.Server
	handler http.Handler
	mute    atomic.Bool // streams send nothing more
}

// newSite serves an empty database.
func newSite(t *testing.T, opts *lockdui.Options) *site {
	t.Helper()
	mock := clock.NewMock()
	mock.Set(time.Date(2026, 3, 14, 9, 26, 53, 0, time.UTC))
	db := lockdtest.New(t, &lockd.Options{Clock: mock, Node: "db1"})
	if opts == nil {
		opts = &lockdui.Options{}
	}
	opts.Now = mock.Now
	handler, err := lockdui.Handler(db.DB, opts)
	must(t, err)
	s := &site{DB: db, t: t}
	s.handler = s.muted(http.StripPrefix("/debug/lockd", handler))
	s.server = httptest.NewServer(s.handler)
	s.url = s.server.URL + "/debug/lockd/"
	t.Cleanup(func() { s.cut() })
	return s
}

// muted passes requests on to next, and drops what streams write while the site is mute.
func (s *site) muted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(&mutedWriter{w, &s.mute}, r)
	})
}

type mutedWriter struct {
	http.ResponseWriter
	mute *atomic.Bool
}

func (w *mutedWriter) Write(p []byte) (int, error) {
	if w.mute.Load() {
		return len(p), nil
	}
	return w.ResponseWriter.Write(p)
}

func (w *mutedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// cut ends the server and all its connections.
func (s *site) cut() {
	s.server.CloseClientConnections()
	s.server.Close()
}

// mend serves again, at the same address.
func (s *site) mend() {
	s.t.Helper()
	listener, err := net.Listen("tcp", s.server.Listener.Addr().String())
	must(s.t, err)
	s.server = httptest.NewUnstartedServer(s.handler)
	must(s.t, s.server.Listener.Close())
	s.server.Listener = listener
	s.server.Start()
}

// session makes a session.
func (s *site) session(name string) *lockd.Session {
	s.t.Helper()
	made, err := s.NewSession(&lockd.SessionOptions{Name: name})
	must(s.t, err)
	return made
}

// holds makes a session that holds the locks.
func (s *site) holds(name string, keys ...string) *lockd.Session {
	s.t.Helper()
	made := s.session(name)
	for _, key := range keys {
		_, err := made.TryLock(key, nil)
		must(s.t, err)
	}
	return made
}

// waits has the session wait for the lock, as the last in the queue.
func (s *site) waits(waiter *lockd.Session, key string) {
	s.t.Helper()
	before := 0
	for l := range s.Locks() {
		if l.Key == key {
			before = len(l.Queue)
		}
	}
	go waiter.Lock(s.t.Context(), key, nil)
	s.WaitForWaiters(key, before+1)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
