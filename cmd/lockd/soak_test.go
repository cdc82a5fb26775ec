package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/consulapi"
)

var soakFor = flag.Duration("soak", 4*time.Second,
	"how long the soak lasts; from a minute on it has ten times as many of all")

// The environment of the child process: the server, and how many connections it makes.
const (
	soakAddress = "LOCKD_TEST_SOAK_ADDRESS"
	soakSilent  = "LOCKD_TEST_SOAK_SILENT"
)

// soak is a server on loopback, and the counts of its clients of all kinds.
type soak struct {
	t       *testing.T
	address string
	limits  limits
	over    time.Time
	crowd   *crowd // of the server; nil in the child process

	answers, refused, silenced, cut, full atomic.Int64
	dropped                               atomic.Int64 // requests of clients that were not answered
	open                                  atomic.Int64 // silent connections that were not closed
}

// The limits of the API that are exceeded ten times.
const (
	soakValue   = 512 << 10
	soakOps     = 64
	soakBlocked = 100
)

// slow is how late an answer may be on a machine with so much to do.
const slow = time.Minute

// Ensure that a server goes on answering its clients, rightly and in time, beside connections that
// say nothing, requests that never end, and requests that are ten times too large, and that it
// keeps nothing of them in the end. A child process has the silent ends of the connections, so that
// each connection takes one file of each process.
func TestSoak(t *testing.T) {
	scale, l := 1, defaultLimits
	if *soakFor >= time.Minute {
		scale = 10
	} else {
		l.header, l.body = time.Second, 2*time.Second
	}
	l.share = l.connections // all come from one address here
	s := &soak{t: t, limits: l, over: time.Now().Add(*soakFor)}
	if s.address = os.Getenv(soakAddress); s.address != "" {
		s.sayNothing()
		return
	}
	db, err := lockd.Open(filepath.Join(t.TempDir(), "lockd.db"), &lockd.Options{
		Sync: lockd.SyncNever, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	api, err := consulapi.Handler(db, &consulapi.Options{
		MaxBlocked: soakBlocked, MaxTxnOps: soakOps, MaxValueSize: soakValue,
	})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.address = listener.Addr().String()
	s.crowd = serveGuarded(t, l, listener, everybody, api.ServeHTTP).crowd
	before := runtime.NumGoroutine()
	// Any other connection takes two files of this process, one for each end.
	silent := max(min(1000*scale, openFiles()-5000), 10)
	most := s.run(scale, silent)
	t.Logf("%v: %d answers, %d requests dropped, %d refused; of %d connections that said nothing "+
		"%d ends, %d not; %d requests that never ended were cut off; %d queries were answered "+
		"before their time; %v",
		*soakFor, s.answers.Load(), s.dropped.Load(), s.refused.Load(), silent, s.silenced.Load(),
		s.open.Load(), s.cut.Load(), s.full.Load(), most)
	s.settle(before)
	// When its listen queue is full, the kernel drops a connection that the client takes for made.
	if s.open.Load() > s.silenced.Load()/50 {
		t.Errorf("%d connections that said nothing are still open", s.open.Load())
	}
	if s.dropped.Load() > s.answers.Load()/20 {
		t.Errorf("%d requests were dropped, and %d answered", s.dropped.Load(), s.answers.Load())
	}
	for what, n := range map[string]*atomic.Int64{
		"answers": &s.answers, "refused": &s.refused, "silenced": &s.silenced, "cut": &s.cut,
		"full": &s.full,
	} {
		if n.Load() == 0 {
			t.Errorf("never happened: %s", what)
		}
	}
}

// soakUsage is what the server uses at one time, or the most of it.
type soakUsage struct {
	connections, goroutines int
	heap                    uint64
}

func (u soakUsage) String() string {
	return fmt.Sprintf("at most %d connections, %d goroutines, %d MiB of heap", u.connections,
		u.goroutines, u.heap>>20)
}

func (s *soak) usage() soakUsage {
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	s.crowd.mu.Lock()
	defer s.crowd.mu.Unlock()
	return soakUsage{len(s.crowd.members), runtime.NumGoroutine(), memory.HeapAlloc}
}

// run lets all do what they do until it is over, and returns the most that the server had.
func (s *soak) run(scale, silent int) (most soakUsage) {
	var all sync.WaitGroup
	crowd := func(n int, do func(chance *rand.Rand)) {
		for i := range n {
			all.Go(func() {
				chance := rand.New(rand.NewPCG(uint64(n), uint64(i)))
				for time.Now().Before(s.over) {
					do(chance)
				}
			})
		}
	}
	for i := range 100 * scale {
		all.Go(func() { s.client(i) })
	}
	all.Go(func() { s.silence(silent) })
	crowd(10*scale, s.neverEnds)
	crowd(2, s.tooLarge)
	crowd(min(2*soakBlocked, openFiles()/8), s.blocked) // each has a connection all the time
	for time.Now().Before(s.over) {
		u := s.usage()
		most = soakUsage{
			max(most.connections, u.connections), max(most.goroutines, u.goroutines),
			max(most.heap, u.heap),
		}
		time.Sleep(100 * time.Millisecond)
	}
	all.Wait()
	return most
}

// silence runs the child process, and adds its counts.
func (s *soak) silence(connections int) {
	child := exec.Command(os.Args[0], "-test.run=^TestSoak$", "-test.v",
		fmt.Sprintf("-test.timeout=%v", *soakFor+10*slow), fmt.Sprintf("-soak=%v", *soakFor))
	child.Env = append(os.Environ(), soakAddress+"="+s.address,
		fmt.Sprintf("%s=%d", soakSilent, connections))
	out, err := child.CombinedOutput()
	counts := regexp.MustCompile(`(\d+) ends, (\d+) not`).FindStringSubmatch(string(out))
	if err != nil || counts == nil {
		s.t.Errorf("the connections that say nothing: %v\n%s", err, out)
		return
	}
	for i, n := range []*atomic.Int64{&s.silenced, &s.open} {
		count, _ := strconv.ParseInt(counts[i+1], 10, 64) // they are digits
		n.Store(count)
	}
}

// sayNothing is what the child process does.
func (s *soak) sayNothing() {
	connections, err := strconv.Atoi(os.Getenv(soakSilent))
	if err != nil {
		s.t.Fatal(err)
	}
	var all sync.WaitGroup
	for range connections {
		all.Go(func() {
			time.Sleep(rand.N(s.limits.header)) // otherwise all would end at once, each time
			for time.Now().Before(s.over) {
				s.saysNothing()
			}
		})
	}
	all.Wait()
	s.t.Logf("%d ends, %d not", s.silenced.Load(), s.open.Load())
}

// settle waits until the server has let go of everything.
func (s *soak) settle(before int) {
	began := time.Now()
	for runtime.NumGoroutine() > before+20 {
		if time.Since(began) > s.limits.body+slow {
			s.t.Errorf("%d goroutines, and %d before", runtime.NumGoroutine(), before)
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	runtime.GC()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	if memory.HeapAlloc > 256<<20 {
		s.t.Errorf("%d MiB are in use when all have gone", memory.HeapAlloc>>20)
	}
}

// client has a connection of its own, and a key and a lock.
func (s *soak) client(n int) {
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	c := &http.Client{Transport: transport, Timeout: slow}
	key := fmt.Sprintf("/v1/kv/soak/%d", n)
	for i := 0; time.Now().Before(s.over); i++ {
		value := fmt.Sprint(n, " ", i)
		s.want(c, http.MethodPut, key, value, "true")
		s.want(c, http.MethodGet, key+"?raw", "", value)
		if i%10 > 0 {
			continue
		}
		id, _ := s.ask(c, http.MethodPut, "/v1/session/create", `{"TTL": "1h"}`)
		id = strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(id), `{"ID":"`), `"}`)
		s.want(c, http.MethodPut, key+"?acquire="+id, value, "true")
		s.want(c, http.MethodPut, key+"?release="+id, value, "true")
		s.want(c, http.MethodPut, "/v1/session/destroy/"+id, "", "true")
	}
}

func (s *soak) want(c *http.Client, method, path, body, want string) {
	answer, repeated := s.ask(c, method, path, body)
	if got := strings.TrimSpace(answer); got != want && repeated == 0 {
		s.t.Errorf("%s %s: got %.100q, want %q", method, path, got, want)
	}
}

// ask repeats a request that was dropped: a busy machine may make the server take the client for a
// silent one. The first request may have been done.
func (s *soak) ask(c *http.Client, method, path, body string) (answer string, repeated int) {
	for ; ; repeated++ {
		status, text, err := s.send(c, method, path, strings.NewReader(body))
		switch {
		case err != nil && time.Now().Before(s.over.Add(slow)):
			s.dropped.Add(1)
			continue
		case err != nil || status != http.StatusOK:
			s.t.Errorf("%s %s: status %d, %v", method, path, status, err)
		}
		s.answers.Add(1)
		return text, repeated
	}
}

func (s *soak) send(c *http.Client, method, path string, body io.Reader) (int, string, error) {
	request, err := http.NewRequest(method, "http://"+s.address+path, body)
	if err != nil {
		return 0, "", err
	}
	response, err := c.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	return response.StatusCode, string(answer), err
}

// dial returns a connection, nil if there is no room for one.
func (s *soak) dial() net.Conn {
	conn, err := net.DialTimeout("tcp", s.address, slow)
	if err != nil {
		time.Sleep(10 * time.Millisecond)
		return nil
	}
	return conn
}

// saysNothing waits for the server to close its connection.
func (s *soak) saysNothing() {
	conn := s.dial()
	if conn == nil {
		return
	}
	defer conn.Close()
	limit := s.limits.header + slow
	if err := conn.SetReadDeadline(time.Now().Add(limit)); err != nil {
		s.t.Error(err)
	}
	_, err := conn.Read(make([]byte, 1))
	var late net.Error
	if errors.As(err, &late) && late.Timeout() {
		s.open.Add(1)
		return
	}
	s.silenced.Add(1)
}

// neverEnds sends a header or a body, a little at a time, until it is cut off.
func (s *soak) neverEnds(chance *rand.Rand) {
	conn := s.dial()
	if conn == nil {
		return
	}
	defer conn.Close()
	begin, more := "GET /v1/kv/a HTTP/1.1\r\nHost: a\r\n", "X: y\r\n"
	if chance.IntN(2) == 0 {
		begin = "PUT /v1/kv/endless HTTP/1.1\r\nHost: a\r\nContent-Length: 400000\r\n\r\n"
		more = "x"
	}
	limit := time.Now().Add(s.limits.body + s.limits.header + slow)
	_, err := io.WriteString(conn, begin)
	for err == nil {
		if time.Now().After(limit) {
			s.t.Error("a request that never ends was not cut off")
			return
		}
		time.Sleep(20 * time.Millisecond)
		_, err = io.WriteString(conn, more)
	}
	s.cut.Add(1)
}

// tooLarge sends requests that are ten times larger than allowed.
func (s *soak) tooLarge(*rand.Rand) {
	transport := &http.Transport{DisableKeepAlives: true}
	c := &http.Client{Transport: transport, Timeout: slow}
	one := `{"KV": {"Verb": "get", "Key": "a"}}`
	txn := "[" + strings.Repeat(one+",", 10*soakOps-1) + one + "]"
	long := strings.Repeat("k", 10*lockd.MaxKeySize)
	for _, request := range []struct {
		method, path string
		body         []byte
	}{
		{http.MethodPut, "/v1/kv/large", make([]byte, 10*soakValue)},
		{http.MethodPut, "/v1/txn", []byte(txn)},
		{http.MethodPut, "/v1/kv/" + long, nil},
		{http.MethodGet, "/v1/kv/a?" + strings.Repeat(long, 4), nil},
	} {
		body := bytes.NewReader(request.body)
		status, answer, err := s.send(c, request.method, request.path, body)
		switch {
		case err != nil: // the server has closed the connection while the request was sent
		case status >= http.StatusBadRequest:
			s.refused.Add(1)
		default:
			s.t.Errorf("%s %.40s: status %d: %.100q", request.method, request.path, status, answer)
		}
	}
	time.Sleep(10 * time.Millisecond)
}

// blocked asks for a change that does not come.
func (s *soak) blocked(*rand.Rand) {
	transport := &http.Transport{DisableKeepAlives: true}
	c := &http.Client{Transport: transport, Timeout: slow}
	const wait = 3 * time.Second
	began := time.Now()
	_, _, err := s.send(c, http.MethodGet, fmt.Sprint("/v1/kv/nothing?index=1&wait=", wait), nil)
	switch {
	case err != nil:
		s.dropped.Add(1)
	case time.Since(began) < wait: // too many others wait
		s.full.Add(1)
	}
}
