package main

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// guardedIn is limitedIn with a guard that lets only the token "t" through.
func guardedIn(t *testing.T, l limits, api http.HandlerFunc) *pipes {
	t.Helper()
	p := &pipes{t: t, conns: make(chan net.Conn), closed: make(chan struct{})}
	token := newSecret("t", "", slog.New(slog.DiscardHandler), func() {})
	guard := func(next http.Handler) http.Handler { return guarded(token, next) }
	serveGuarded(t, l, p, guard, api)
	return p
}

// from is a connection with the address of a client.
type from struct {
	net.Conn
	address net.Addr
}

func (f from) RemoteAddr() net.Addr { return f.address }

// dialFrom is dial from an address.
func (p *pipes) dialFrom(address string) *caller {
	p.t.Helper()
	tcp, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		p.t.Fatal(err)
	}
	ours, theirs := net.Pipe()
	p.t.Cleanup(func() { _ = ours.Close() })
	p.conns <- from{theirs, tcp}
	return &caller{ours, p.t, bufio.NewReader(ours)}
}

const withToken = "Host: h\r\nX-Consul-Token: t\r\n"

// Ensure that a refused request is answered at once, whether or not its body comes, and that its
// connection is gone within a second.
func TestLimits_RefusedRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := guardedIn(t, defaultLimits, answerOK)
		for _, request := range []string{
			"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n",
			"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n12345",
			"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 10000000\r\n\r\n12345",
			"PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n",
			"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\nExpect: 100-continue\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: h\r\n\r\n",
			"OPTIONS * HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n",
		} {
			c := server.dial()
			start := time.Now()
			go func() { _, _ = io.WriteString(c, request) }() // it may not be read to its end
			if got := c.status(); got != 403 {
				t.Errorf("%q: got %d", request, got)
			}
			if took := time.Since(start); took != 0 {
				t.Errorf("%q: answered after %v", request, took)
			}
			c.closed()
			if took := time.Since(start); took > time.Second {
				t.Errorf("%q: closed after %v", request, took)
			}
		}
	})
}

// Ensure that a refused request has its answer, also if a busy machine takes seconds to send it.
func TestLimits_RefusedRequest_Late(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := guardedIn(t, defaultLimits, answerOK).dial()
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second) // the server cannot send before this side reads
		if got := c.status(); got != 403 {
			t.Errorf("got %d", got)
		}
		c.closed()
	})
}

// Ensure that connections without a token take no place from a request with a token, whether they
// were refused or have sent only a part of a request.
func TestLimits_TokenlessConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 5
		l := defaultLimits
		l.connections = most
		server := guardedIn(t, l, answerOK)
		for _, begun := range []string{
			"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n", "G", "GET / HTTP/1.1\r\n",
		} {
			for range 2 * most {
				_, err := io.WriteString(server.dial(), begun)
				if err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
			start := time.Now()
			c := server.dial()
			go func() { _, _ = io.WriteString(c, "GET / HTTP/1.1\r\n"+withToken+"\r\n") }()
			if got := c.status(); got != 200 {
				t.Errorf("beside %q: got %d", begun, got)
			}
			if took := time.Since(start); took != 0 {
				t.Errorf("beside %q: answered after %v", begun, took)
			}
			_ = c.Close()
		}
	})
}

// Ensure that no client has more connections than its share, idle or at work, that other clients do
// not notice, and that the client has room again after it has ended some.
func TestLimits_Share(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const share = 3
		l := defaultLimits
		l.share = share
		release := make(chan struct{})
		server := limitedIn(t, l, func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/wait" {
				select {
				case <-release:
				case <-r.Context().Done(): // its client has closed the connection
				}
			}
		})
		ask := func(c *caller, path string) {
			c.say("GET %s HTTP/1.1\r\nHost: h\r\n\r\n", path)
		}
		for _, addresses := range [][2]string{
			{"192.0.2.1", "192.0.2.2"}, {"::ffff:198.51.100.1", "198.51.100.2"},
			{"2001:db8::%d", "2001:db8:0:1::1"}, {"fe80::1%eth0", "fe80::2%eth0"},
		} {
			address := func(n int) string {
				if strings.Contains(addresses[0], "%d") {
					return net.JoinHostPort(fmt.Sprintf(addresses[0], n+1), fmt.Sprint(1000+n))
				}
				return net.JoinHostPort(addresses[0], fmt.Sprint(1000+n))
			}
			var idle, busy []*caller
			for n := range share {
				idle = append(idle, server.dialFrom(address(n)))
			}
			for n := range share {
				busy = append(busy, server.dialFrom(address(share+n)))
				idle[n].closedAfter(0) // the connection that has been idle for longest
				ask(busy[n], "/wait")
			}
			synctest.Wait()
			server.dialFrom(address(2 * share)).closedAfter(0)

			other := server.dialFrom(net.JoinHostPort(addresses[1], "1"))
			ask(other, "/")
			if got := other.status(); got != 200 {
				t.Errorf("%s beside %s: got %d", addresses[1], addresses[0], got)
			}
			_ = busy[0].Close()
			synctest.Wait()
			c := server.dialFrom(address(3 * share))
			ask(c, "/")
			if got := c.status(); got != 200 {
				t.Errorf("%s with room again: got %d", addresses[0], got)
			}
			for range share - 1 {
				release <- struct{}{}
			}
		}
	})
}

// Ensure that this machine has no share, because all its programs have one address.
func TestLimits_ShareOfThisMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := defaultLimits
		l.share = 1
		server := limitedIn(t, l, answerOK)
		for _, dial := range []func() *caller{
			func() *caller { return server.dialFrom("127.0.0.1:1") },
			func() *caller { return server.dialFrom("[::1]:1") },
			server.dial, // as by a socket in the file system
		} {
			var callers []*caller
			for range 3 {
				callers = append(callers, dial())
			}
			for _, c := range callers {
				c.say("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
				if got := c.status(); got != 200 {
					t.Errorf("got %d", got)
				}
			}
		}
	})
}

// full is a listener without a file for the next connections.
type full struct {
	net.Listener
	errs chan error
}

func (f full) Accept() (net.Conn, error) {
	select {
	case err := <-f.errs:
		return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", err)}
	default:
		return f.Listener.Accept()
	}
}

// Ensure that when the system has no file left for new connections, the connections that have been
// idle for longest are closed, one for each new one, and connections at work are not.
func TestLimits_NoFilesLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pipes{t: t, conns: make(chan net.Conn), closed: make(chan struct{})}
		errs := make(chan error, 2)
		release := make(chan struct{})
		serveGuarded(t, defaultLimits, full{p, errs}, everybody,
			func(_ http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/wait" {
					<-release
				}
			})
		busy := p.dial()
		busy.say("GET /wait HTTP/1.1\r\nHost: h\r\n\r\n")
		idle := []*caller{p.dial(), p.dial(), p.dial()}
		synctest.Wait() // busy is at work once its request has been read and admitted
		errs <- syscall.EMFILE
		errs <- syscall.ENFILE
		idle = append(idle, p.dial()) // the server waits for this one already
		synctest.Wait()
		time.Sleep(time.Second) // the server tries again a little later
		for _, c := range idle[:2] {
			c.closedAfter(0)
		}
		c := p.dial()
		for _, c := range append(idle[2:], c) {
			c.say("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
			if got := c.status(); got != 200 {
				t.Errorf("got %d", got)
			}
		}
		close(release)
		if got := busy.status(); got != 200 {
			t.Errorf("the one at work: got %d", got)
		}
	})
}

// Ensure that connections leave some files for other uses, and that a process that may have few
// files still has some connections.
func TestLimits_Within(t *testing.T) {
	for files, want := range map[int]int{
		1 << 30: defaultLimits.connections, 1024: 1024 - spareFiles, 100: 50, 20: 10,
	} {
		if got := defaultLimits.within(files).connections; got != want {
			t.Errorf("%d files: %d connections, want %d", files, got, want)
		}
	}
}

// Ensure that a client that takes its answer too slowly is cut off, and that a client that is quick
// enough on the whole is not, however often it pauses.
func TestLimits_SlowlyRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const piece, pieces = 32 << 10, 100
		written := make(chan error, 1)
		server := limitedIn(t, defaultLimits, func(w http.ResponseWriter, _ *http.Request) {
			for range pieces {
				if _, err := w.Write(make([]byte, piece)); err != nil {
					written <- err
					return
				}
			}
			written <- nil
		})
		for pause, want := range map[time.Duration]error{
			time.Second / 2: nil, 5 * time.Second: os.ErrDeadlineExceeded,
		} {
			c := server.dial()
			start := time.Now()
			c.say("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
			buf := make([]byte, piece)
			for {
				if _, err := io.ReadFull(c, buf); err != nil {
					break
				}
				if len(written) > 0 {
					_ = c.Close()
					break
				}
				time.Sleep(pause)
			}
			if err := <-written; (err == nil) != (want == nil) {
				t.Errorf("a pause of %v: got %v, want %v", pause, err, want)
			}
			if took := time.Since(start); want != nil && took > 2*defaultLimits.body {
				t.Errorf("a pause of %v: cut off after %v", pause, took)
			}
		}
	})
}

// serveGuarded serves a handler with limits and a guard until the test ends.
func serveGuarded(t *testing.T, l limits, listener net.Listener,
	guard func(http.Handler) http.Handler, api http.HandlerFunc,
) *httpServer {
	t.Helper()
	s := newServer(l, guard, slog.New(slog.DiscardHandler), api)
	ended := make(chan error)
	go func() { ended <- s.Serve(listener) }()
	t.Cleanup(func() {
		if err := s.stop(patience); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != http.ErrServerClosed {
			t.Error(err)
		}
	})
	return s
}
