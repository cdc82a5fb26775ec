package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
)

// brief are limits that a test can wait for.
var brief = limits{
	header:      50 * time.Millisecond,
	headerBytes: 4 << 10,
	body:        50 * time.Millisecond,
	bodyRate:    1 << 20,
	ignored:     100,
	idle:        50 * time.Millisecond,
	connections: 100,
}

// patience is how long a test waits for what has to happen.
const patience = 20 * time.Second

// limited serves a handler with limits, and returns the address.
func limited(t *testing.T, l limits, api http.HandlerFunc) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(l, "", slog.New(slog.DiscardHandler), api)
	ended := make(chan error)
	go func() { ended <- s.Serve(listener) }()
	t.Cleanup(func() {
		if err := s.stop(patience); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

// client is a connection that says what the test wants.
type tcpClient struct {
	*net.TCPConn
	t *testing.T
	r *bufio.Reader
}

func dial(t *testing.T, address string) *tcpClient {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return &tcpClient{conn.(*net.TCPConn), t, bufio.NewReader(conn)}
}

func (c *tcpClient) say(format string, args ...any) {
	c.t.Helper()
	if _, err := fmt.Fprintf(c, format, args...); err != nil {
		c.t.Fatal(err)
	}
}

// status returns that of the next answer, whose body it reads; 0 if the connection is closed.
func (c *tcpClient) status() int {
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
func (c *tcpClient) closed() {
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

// Ensure that a client that does not end its header is cut off.
func TestLimits_SlowHeader(t *testing.T) {
	t.Parallel()
	address := limited(t, brief, answerOK)
	c := dial(t, address)
	c.say("GET / HTTP/1.1\r\nHost: h\r\n")
	c.closed()
	silent := dial(t, address)
	silent.closed()
}

// Ensure that a header that is too large is refused, and one below that taken.
func TestLimits_LargeHeader(t *testing.T) {
	t.Parallel()
	l := brief
	l.header = patience
	address := limited(t, l, answerOK)
	c := dial(t, address)
	c.say("GET / HTTP/1.1\r\nHost: h\r\nX: %s\r\n\r\n", strings.Repeat("x", l.headerBytes/2))
	if got := c.status(); got != 200 {
		t.Errorf("half of the limit: got %d", got)
	}
	c = dial(t, address)
	c.say("GET / HTTP/1.1\r\nHost: h\r\n")
	for range 3 * l.headerBytes / 100 { // the server allows itself 4 KiB more
		if _, err := fmt.Fprintf(c, "X: %s\r\n", strings.Repeat("x", 95)); err != nil {
			break // it does not read on
		}
	}
	if got := c.status(); got != 431 && got != 0 {
		t.Errorf("three times the limit: got %d", got)
	}
}

// Ensure that a client that does not send its body is cut off, and that one that sends in time is
// not, however long the answer takes then.
func TestLimits_SlowBody(t *testing.T) {
	t.Parallel()
	reading := make(chan error, 2)
	address := limited(t, brief, func(w http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		reading <- err
	})
	for _, header := range []string{
		"Content-Length: 10\r\n\r\n12345", "Transfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n",
	} {
		c := dial(t, address)
		c.say("PUT / HTTP/1.1\r\nHost: h\r\n%s", header)
		select {
		case err := <-reading:
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("the handler got %v", err)
			}
		case <-time.After(patience):
			t.Fatal("the body is still waited for")
		}
		c.closed()
	}
}

// Ensure that a request that waits for longer than a body may take is not ended by that.
func TestLimits_LongWait(t *testing.T) {
	t.Parallel()
	address := limited(t, brief, func(w http.ResponseWriter, r *http.Request) {
		answerOK(w, r)
		select {
		case <-r.Context().Done():
			w.WriteHeader(http.StatusGone)
		case <-time.After(6 * brief.body):
		}
	})
	for _, request := range []string{
		"GET / HTTP/1.1\r\nHost: h\r\n\r\n",
		"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\n1",
	} {
		c := dial(t, address)
		c.say("%s", request)
		if got := c.status(); got != 200 {
			t.Errorf("%q: got %d", request, got)
		}
	}
}

// Ensure that a large body that comes steadily has more time than a small one.
func TestLimits_BodyRate(t *testing.T) {
	t.Parallel()
	l := brief
	l.bodyRate = 1000 // a second more for each 1000 bytes
	received := make(chan struct{})
	address := limited(t, l, func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadFull(r.Body, make([]byte, 1000)); err != nil {
			t.Error(err)
		}
		close(received)
		answerOK(w, r)
	})
	c := dial(t, address)
	c.say("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 1001\r\n\r\n%s", strings.Repeat("x", 1000))
	<-received
	time.Sleep(2 * l.body) // past the time that it had at first
	c.say("y")
	if got := c.status(); got != 200 {
		t.Errorf("got %d", got)
	}
}

// Ensure that a client that does not take its answer is cut off.
func TestLimits_SlowReader(t *testing.T) {
	t.Parallel()
	written := make(chan error, 1)
	address := limited(t, brief, func(w http.ResponseWriter, _ *http.Request) {
		var err error
		for range 1000 { // more than all buffers on the way hold
			if _, err = w.Write(make([]byte, 64<<10)); err != nil {
				break
			}
		}
		written <- err
	})
	c := dial(t, address)
	c.say("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	select {
	case err := <-written:
		if err == nil {
			t.Error("everything was written")
		}
	case <-time.After(patience):
		t.Error("the answer is still being written")
	}
	_ = c.Close() // or the server could not be stopped, had it failed
}

// Ensure that an answer that was written in time does not end the connection later.
func TestLimits_NextRequest(t *testing.T) {
	t.Parallel()
	l := brief
	l.idle = patience
	c := dial(t, limited(t, l, func(w http.ResponseWriter, r *http.Request) {
		answerOK(w, r)
		_, _ = io.WriteString(w, "answer")
	}))
	for range 3 {
		c.say("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\n1")
		if got := c.status(); got != 200 {
			t.Fatalf("got %d", got)
		}
		time.Sleep(2 * l.body)
	}
}

// Ensure that a connection that is idle is closed.
func TestLimits_Idle(t *testing.T) {
	t.Parallel()
	c := dial(t, limited(t, brief, answerOK))
	c.say("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	if got := c.status(); got != 200 {
		t.Fatalf("got %d", got)
	}
	c.closed()
}

// Ensure that a client that has gone, or has closed its half of the connection, frees what its
// request waits for, also if it announced a body that nobody reads.
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
		if err := c.CloseWrite(); err != nil {
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

// Ensure that a body that nothing is done with does not have to be read to its end.
func TestLimits_IgnoredBody(t *testing.T) {
	t.Parallel()
	address := limited(t, brief, func(http.ResponseWriter, *http.Request) {})
	for body, want := range map[int]int{
		int(brief.ignored): 200, int(brief.ignored) + 1: 413, 10 << 20: 413,
	} {
		c := dial(t, address)
		c.say("GET / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%s", body,
			strings.Repeat("x", min(body, 1000)))
		if got := c.status(); got != want {
			t.Errorf("%d bytes: got %d, want %d", body, got, want)
		}
	}
}

// Ensure that thousands of connections that are idle leave room for one more, that they are no
// more than allowed, and that those at work are left alone.
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
	<-working // until then it is as idle as the others
	var crowd []*tcpClient
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

// mustClose fails the test unless the server closes so many of the connections. Which ones depends
// on the moment at which it notes that each is idle.
func mustClose(t *testing.T, crowd []*tcpClient, want int) {
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
	for _, c := range crowd { // ends the reading of those that are open
		if err := c.SetDeadline(time.Unix(1, 0)); err != nil {
			t.Error(err)
		}
	}
	reading.Wait()
}

// Ensure that when all connections are at work a new one is turned away, and taken when there is
// room again.
func TestLimits_BusyConnections(t *testing.T) {
	t.Parallel()
	const most = 5
	l := defaultLimits
	l.connections = most
	release := make(chan struct{})
	started := make(chan struct{}, most)
	address := limited(t, l, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			started <- struct{}{}
			<-release
		}
	})
	var busy []*tcpClient
	for range most {
		c := dial(t, address)
		c.say("GET /wait HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
		<-started
		busy = append(busy, c)
	}
	dial(t, address).closed()
	close(release)
	for _, c := range busy {
		if got := c.status(); got != 200 {
			t.Errorf("got %d", got)
		}
		c.closed()
	}
	// The server counts a connection for a moment longer than its client.
	for end := time.Now().Add(patience); ; {
		c := dial(t, address)
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n") // status says if not
		if got := c.status(); got == 200 {
			break
		} else if time.Now().After(end) {
			t.Fatalf("after that: got %d", got)
		}
	}
}

// Ensure that lockd serve has every limit, and room for the queries that may be blocked.
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
