package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// patience is how long a test waits for what has to happen.
const patience = 20 * time.Second

// everybody is a guard that lets every request through.
func everybody(next http.Handler) http.Handler { return next }

// limited serves a handler with limits on loopback, and returns the address.
func limited(t *testing.T, l limits, api http.HandlerFunc) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serveGuarded(t, l, listener, everybody, api)
	return listener.Addr().String()
}

// limitedIn serves a handler with limits in the bubble of the test, whose time passes when the
// server and its clients do nothing but wait.
func limitedIn(t *testing.T, l limits, api http.HandlerFunc) *pipes {
	t.Helper()
	p := &pipes{t: t, conns: make(chan net.Conn), closed: make(chan struct{})}
	serveGuarded(t, l, p, everybody, api)
	return p
}

// pipes is a listener whose connections are pipes.
type pipes struct {
	t      *testing.T
	conns  chan net.Conn
	closed chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	close(p.closed)
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }

// dial returns when the server has accepted.
func (p *pipes) dial() *caller {
	ours, theirs := net.Pipe()
	p.t.Cleanup(func() { _ = ours.Close() })
	p.conns <- theirs
	return &caller{ours, p.t, bufio.NewReader(ours)}
}

// caller is a connection that says what the test wants.
type caller struct {
	net.Conn
	t *testing.T
	r *bufio.Reader
}

func dial(t *testing.T, address string) *caller {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return &caller{conn, t, bufio.NewReader(conn)}
}

func (c *caller) say(format string, args ...any) {
	c.t.Helper()
	if _, err := fmt.Fprintf(c, format, args...); err != nil {
		c.t.Fatal(err)
	}
}

// status returns the status of the next answer, after its body, or 0 if the connection is closed.
func (c *caller) status() int {
	c.t.Helper()
	response, err := http.ReadResponse(c.r, nil)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatal("the server does not answer, nor does it close the connection")
	}
	if err != nil {
		return 0
	}
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return 0
	}
	return response.StatusCode
}

// closed fails the test unless the server closes the connection.
func (c *caller) closed() {
	c.t.Helper()
	for c.status() != 0 {
		continue
	}
}

func answerOK(w http.ResponseWriter, r *http.Request) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		w.WriteHeader(http.StatusBadRequest)
	}
}

// closedAfter fails the test unless the server closes the connection after exactly that time.
func (c *caller) closedAfter(want time.Duration) {
	c.t.Helper()
	start := time.Now()
	c.closed()
	if got := time.Since(start); got != want {
		c.t.Errorf("closed after %v, not %v", got, want)
	}
}

// Ensure that a client that does not end its header is cut off.
func TestLimits_SlowHeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := limitedIn(t, defaultLimits, answerOK)
		for _, header := range []string{"GET / HTTP/1.1\r\nHost: h\r\n", ""} {
			c := server.dial()
			c.say("%s", header)
			c.closedAfter(defaultLimits.header)
		}
	})
}

// Ensure that a header that is too large is refused, and a smaller header is taken.
func TestLimits_LargeHeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := limitedIn(t, defaultLimits, answerOK)
		for size, want := range map[int]int{
			defaultLimits.headerBytes / 2: 200, defaultLimits.headerBytes * 2: 431,
		} {
			c := server.dial()
			go func() { // the server may not read it to its end
				_, _ = fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: h\r\nX: %s\r\n\r\n",
					strings.Repeat("x", size))
			}()
			if got := c.status(); got != want {
				t.Errorf("%d bytes: got %d, want %d", size, got, want)
			}
		}
	})
}

// Ensure that a client that does not send its body is cut off.
func TestLimits_SlowBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		server := limitedIn(t, defaultLimits, func(_ http.ResponseWriter, r *http.Request) {
			_, err := io.Copy(io.Discard, r.Body)
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("the handler got %v", err)
			}
			// The bytes that have been sent add less than a second.
			got := time.Since(start)
			if got < defaultLimits.body || got >= defaultLimits.body+time.Second {
				t.Errorf("cut off after %v", got)
			}
		})
		for _, header := range []string{
			"Content-Length: 10\r\n\r\n12345", "Transfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n",
		} {
			start = time.Now()
			c := server.dial()
			c.say("PUT / HTTP/1.1\r\nHost: h\r\n%s", header)
			c.closed()
		}
	})
}

// Ensure that a request that waits for longer than a body may take is not ended by that.
func TestLimits_LongWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := limitedIn(t, defaultLimits, func(w http.ResponseWriter, r *http.Request) {
			answerOK(w, r)
			select {
			case <-r.Context().Done():
				w.WriteHeader(http.StatusGone)
			case <-time.After(time.Hour):
			}
		})
		for _, request := range []string{
			"GET / HTTP/1.1\r\nHost: h\r\n\r\n",
			"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\n1",
		} {
			c := server.dial()
			c.say("%s", request)
			if got := c.status(); got != 200 {
				t.Errorf("%q: got %d", request, got)
			}
		}
	})
}

// Ensure that a large body that comes steadily has more time than a small body, and no more time
// than its bytes have earned.
func TestLimits_BodyRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := defaultLimits
		l.bodyRate = 1000 // a second more for each 1000 bytes
		server := limitedIn(t, l, answerOK)
		for pause, want := range map[time.Duration]int{
			l.body + time.Second - 1: 200, l.body + time.Second + 1: 400,
		} {
			c := server.dial()
			c.say("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 1001\r\n\r\n%s",
				strings.Repeat("x", 1000))
			time.Sleep(pause)
			go func() { _, _ = io.WriteString(c, "x") }() // the server may not read it
			if got := c.status(); got != want {
				t.Errorf("the last byte after %v: got %d, want %d", pause, got, want)
			}
		}
	})
}

// Ensure that a client that does not take its answer is cut off.
func TestLimits_SlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const piece = 64 << 10
		written := make(chan error)
		server := limitedIn(t, defaultLimits, func(w http.ResponseWriter, _ *http.Request) {
			_, err := w.Write(make([]byte, piece))
			written <- err
		})
		c := server.dial()
		start := time.Now()
		c.say("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		if err := <-written; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the handler got %v", err)
		}
		want := defaultLimits.body + piece*time.Second/time.Duration(defaultLimits.bodyRate)
		if got := time.Since(start); got != want {
			t.Errorf("cut off after %v, not %v", got, want)
		}
	})
}

// Ensure that a client that does not take an answer without a body is cut off too.
func TestLimits_SlowReader_NoBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := limitedIn(t, defaultLimits, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusSeeOther)
		}).dial()
		c.say("POST / HTTP/1.1\r\nHost: h\r\n\r\n")
		time.Sleep(defaultLimits.body + time.Second)
		if got := c.status(); got != 0 {
			t.Errorf("got %d, after %v", got, defaultLimits.body+time.Second)
		}
	})
}

// Ensure that an answer that was written in time does not end the connection later.
func TestLimits_NextRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := defaultLimits
		l.idle = time.Hour
		c := limitedIn(t, l, func(w http.ResponseWriter, r *http.Request) {
			answerOK(w, r)
			_, _ = io.WriteString(w, "answer")
		}).dial()
		for range 3 {
			c.say("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\n1")
			if got := c.status(); got != 200 {
				t.Fatalf("got %d", got)
			}
			time.Sleep(2 * l.body)
		}
	})
}

// Ensure that a connection that is idle is closed.
func TestLimits_Idle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := limitedIn(t, defaultLimits, answerOK).dial()
		c.say("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		if got := c.status(); got != 200 {
			t.Fatalf("got %d", got)
		}
		c.closedAfter(defaultLimits.idle)
	})
}

// Ensure that a client that has gone, or has closed its half of the connection, frees what its
// request waits for, also if the request announced a body that is not read.
func TestLimits_HalfClosed(t *testing.T) {
	t.Parallel()
	for _, request := range []string{
		"GET / HTTP/1.1\r\nHost: h\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\n1",
		"DELETE / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n1\r\n0\r\n\r\n",
	} {
		waiting, freed := make(chan struct{}), make(chan struct{})
		address := limited(t, defaultLimits, func(_ http.ResponseWriter, r *http.Request) {
			close(waiting)
			<-r.Context().Done()
			close(freed)
		})
		c := dial(t, address)
		c.say("%s", request)
		<-waiting
		if err := c.Conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-freed:
		case <-time.After(patience):
			t.Errorf("%q: still waiting", request)
			_ = c.Close()
		}
	}
}

// Ensure that a body that the handler ignores does not have to be read to its end.
func TestLimits_IgnoredBody(t *testing.T) {
	t.Parallel()
	l := defaultLimits
	l.ignored = 100
	address := limited(t, l, func(http.ResponseWriter, *http.Request) {})
	for body, want := range map[int]int{
		int(l.ignored): 200, int(l.ignored) + 1: 413, 10 << 20: 413,
	} {
		c := dial(t, address)
		c.say("GET / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%s", body,
			strings.Repeat("x", min(body, 1000)))
		if got := c.status(); got != want {
			t.Errorf("%d bytes: got %d, want %d", body, got, want)
		}
	}
}

// Ensure that a client that waits for 100 Continue is told at once that its request is refused.
func TestLimits_RefusedBeforeTheBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := limitedIn(t, defaultLimits, func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "refused", http.StatusMethodNotAllowed)
		})
		for _, body := range []string{"Content-Length: 600000", "Transfer-Encoding: chunked"} {
			start := time.Now()
			c := server.dial()
			c.say("PUT / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n%s\r\n\r\n", body)
			if got := c.status(); got != http.StatusMethodNotAllowed {
				t.Errorf("%s: got %d", body, got)
			}
			if took := time.Since(start); took > time.Second {
				t.Errorf("%s: answered after %v", body, took)
			}
		}
	})
}

// Ensure that thousands of idle connections leave room for one more, that the limit holds, and that
// connections at work are left alone.
func TestLimits_IdleConnections(t *testing.T) {
	t.Parallel()
	const most, many = 50, 2000
	l := defaultLimits
	l.connections = most
	working, release := make(chan struct{}), make(chan struct{})
	address := limited(t, l, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			close(working)
			<-release
		}
	})
	busy := dial(t, address)
	busy.say("GET /wait HTTP/1.1\r\nHost: h\r\n\r\n")
	<-working // until then it counts as idle
	var crowd []*caller
	for n := range many {
		c := dial(t, address)
		if n%2 == 0 { // the others never say a word
			c.say("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
			if got := c.status(); got != 200 {
				t.Fatalf("connection %d: got %d", n, got)
			}
		}
		crowd = append(crowd, c)
	}
	c := dial(t, address)
	c.say("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	if got := c.status(); got != 200 {
		t.Errorf("one more: got %d", got)
	}
	mustClose(t, crowd, many-most)
	close(release)
	if got := busy.status(); got != 200 {
		t.Errorf("the one at work: got %d", got)
	}
}

// mustClose fails the test unless the server closes the given number of connections. Which ones
// depends on the moment at which it notes that each is idle.
func mustClose(t *testing.T, crowd []*caller, want int) {
	t.Helper()
	closed := make(chan struct{}, len(crowd))
	var reading sync.WaitGroup
	for _, c := range crowd {
		reading.Go(func() {
			_, err := io.Copy(io.Discard, c.r)
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				closed <- struct{}{}
			}
		})
	}
	tooLate := time.After(patience)
	for n := range want {
		select {
		case <-closed:
		case <-tooLate:
			t.Fatalf("%d idle connections are closed, want %d", n, want)
		}
	}
	for _, c := range crowd { // ends the reading from open connections
		if err := c.SetDeadline(time.Unix(1, 0)); err != nil {
			t.Error(err)
		}
	}
	reading.Wait()
}

// Ensure that a new connection is turned away when all others are at work, and is taken when there
// is room again.
func TestLimits_BusyConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 5
		l := defaultLimits
		l.connections = most
		release := make(chan struct{})
		server := limitedIn(t, l, func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/wait" {
				<-release
			}
		})
		var busy []*caller
		for range most {
			c := server.dial()
			c.say("GET /wait HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
			busy = append(busy, c)
		}
		synctest.Wait() // until then some count as idle
		server.dial().closedAfter(0)
		close(release)
		for _, c := range busy {
			if got := c.status(); got != 200 {
				t.Errorf("got %d", got)
			}
			c.closed()
		}
		synctest.Wait() // the server counts a connection for a moment longer than its client
		c := server.dial()
		c.say("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		if got := c.status(); got != 200 {
			t.Errorf("after that: got %d", got)
		}
	})
}

// Ensure that lockd serve has every limit, and room for all blocked queries that are allowed.
func TestLimits_Defaults(t *testing.T) {
	v := reflect.ValueOf(defaultLimits)
	for i := range v.NumField() {
		if v.Field(i).Int() <= 0 {
			t.Errorf("%s is %d", v.Type().Field(i).Name, v.Field(i).Int())
		}
	}
	const blocked = 10_000 // consulapi's default
	if defaultLimits.connections <= blocked {
		t.Errorf("%d connections are not enough for %d blocked queries", defaultLimits.connections,
			blocked)
	}
	if defaultLimits.connections > 1<<16 || defaultLimits.headerBytes > 1<<20 {
		t.Errorf("no limits: %+v", defaultLimits)
	}
}
