package histories_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockd/lockd"
)

// remote is a client over HTTP: in process, or of a server on loopback.
type remote struct {
	caller
	loopback  bool
	client    *http.Client
	base      string
	cancelled int             // requests that were given up
	shared    map[string]bool // whether the lock of a key was last asked for in the shared mode
}

func (c *remote) run(operations int) {
	for range operations {
		c.since = c.w.stamp()
		if e := c.w.current.Load(); e != c.era {
			c.begin(e)
		}
		c.w.asked.Add(1)
		if c.s == nil {
			c.newSession()
			continue
		}
		c.step()
	}
	c.client.CloseIdleConnections()
}

func (c *remote) begin(e *era) {
	if c.client != nil {
		c.client.CloseIdleConnections()
	}
	c.era, c.base = e, "http://lockd.invalid"
	c.client = &http.Client{Transport: e.transport}
	if c.loopback {
		c.base, c.client = e.server.URL, &http.Client{Transport: &http.Transport{}}
	}
	if c.s != nil && !e.alive[c.s.id] {
		c.s = nil
	}
}

// reply is the answer to a request.
type reply struct {
	status int
	body   string
	header http.Header
	err    error
}

// ask sends a request. Now and then it gives up after a short time.
func (c *remote) ask(method, path string, query url.Values, body string) reply {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if method != http.MethodGet && c.cancelled < 2 && c.chance.IntN(12) == 0 {
		c.cancelled++
		limit := time.Duration(c.chance.IntN(300)) * time.Microsecond
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	address := c.base + path + "?" + query.Encode()
	request, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(body))
	if err != nil {
		return reply{err: err}
	}
	request.Host = c.era.host
	response, err := c.client.Do(request)
	if err != nil {
		return reply{err: err}
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	got := reply{response.StatusCode, string(answer), response.Header, err}
	if errors.Is(got.failed(), errStatus) && c.era.db.Err() == nil && !c.lost() {
		c.w.violation("%s %s: %d %s", method, path, got.status, got.body)
	}
	return got
}

var errStatus = errors.New("an answer that was not to be expected")

// failed returns why there is no answer, or nil if there is one. The answer that a commit has
// failed counts as ErrCommit.
func (r reply) failed() error {
	switch {
	case r.err != nil:
		return r.err
	case r.status == http.StatusOK, r.status == http.StatusNotFound:
		return nil
	case strings.Contains(r.body, lockd.ErrCommit.Error()):
		return lockd.ErrCommit
	case strings.Contains(r.body, "invalid session"):
		return lockd.ErrNoSession
	}
	return errStatus
}

// answered keeps an operation, and reports whether there was an answer.
func (c *remote) answered(r *record, got reply, outcome outcome) {
	err := got.failed()
	r.quiet = true
	switch {
	case err == nil:
		c.keep(r, outcome)
	case c.lost():
		c.keep(r, unknown)
	case errors.Is(err, lockd.ErrCommit), errors.Is(err, lockd.ErrNoSession):
	case r.kind == read:
	default: // it may still be done
		r.output, r.back = output{outcome: unknown}, 0
		c.w.add(r)
	}
	if errors.Is(err, errStatus) || got.err != nil && !errors.Is(err, context.DeadlineExceeded) {
		c.pause()
	}
}

// pause waits for the next era if the current one is over.
func (c *remote) pause() {
	if err := c.era.db.Err(); err != nil || c.lost() {
		<-c.era.over
	}
}

func (c *remote) newSession() {
	opts := `{"LockDelay": "` + []string{"0s", "1ms", "3ms"}[c.chance.IntN(3)] + `"}`
	call := c.w.stamp()
	got := c.ask(http.MethodPut, "/v1/session/create", nil, opts)
	if got.failed() != nil {
		c.pause()
		return
	}
	var made struct{ ID string }
	if err := json.Unmarshal([]byte(got.body), &made); err != nil {
		c.w.violation("session: %v: %s", err, got.body)
	}
	delay := map[string]time.Duration{"0": 0, "1": 1e6, "3": 3e6}[opts[15:16]]
	c.s = &session{id: made.ID, delay: delay, made: call, era: c.era.number}
	c.w.mu.Lock()
	c.w.sessions = append(c.w.sessions, c.s)
	c.w.mu.Unlock()
}

// step does one operation.
func (c *remote) step() {
	key, value := c.key(), c.value()
	switch n := c.chance.IntN(100); {
	case n < 25:
		c.read(key)
	case n < 40:
		r := c.record(input{kind: put, key: key, value: value}, c.w.stamp())
		c.answered(r, c.ask(http.MethodPut, "/v1/kv/"+key, nil, value), done)
	case n < 48:
		now, _ := c.era.db.Get(key)
		in := input{kind: swap, key: key, value: value, index: now.ModifyIndex}
		c.swap(in, http.MethodPut)
	case n < 50:
		c.answered(c.record(input{kind: remove, key: key}, c.w.stamp()),
			c.ask(http.MethodDelete, "/v1/kv/"+key, nil, ""), done)
	case n < 52:
		if now, there := c.era.db.Get(key); there {
			c.swap(input{kind: removeIf, key: key, index: now.ModifyIndex}, http.MethodDelete)
		}
	case n < 74:
		c.acquire(key, value)
	case n < 95:
		in, query := c.locking(release, key, value)
		r := c.record(in, c.w.stamp())
		got := c.ask(http.MethodPut, "/v1/kv/"+key, query, in.value)
		c.answered(r, got, verdict(got))
	case n < 97:
		c.destroy()
	default:
		time.Sleep(time.Duration(c.chance.IntN(2000)) * time.Microsecond)
	}
}

// verdict is what an answer of true or false says.
func verdict(got reply) outcome {
	if strings.TrimSpace(got.body) == "true" {
		return done
	}
	return refused
}

func (c *remote) swap(in input, method string) {
	r := c.record(in, c.w.stamp())
	index := strconv.FormatUint(in.index, 10)
	got := c.ask(method, "/v1/kv/"+in.key, url.Values{"cas": {index}}, in.value)
	c.answered(r, got, verdict(got))
}

// fence returns the lock's fence from the answer, or 0 if it has none.
func (r reply) fence() uint64 {
	fence, _ := strconv.ParseUint(r.header.Get("X-Lockd-Fence"), 10, 64)
	return fence
}

// obstacle returns the obstacle that the answer to an acquire names.
func (r reply) obstacle() obstacle {
	for begins, why := range map[string]obstacle{
		"held by": held, "shared by": shared, "delayed for": delayed, "promised to": queued,
	} {
		if strings.HasPrefix(r.header.Get("X-Lockd-Refusal"), begins) {
			return why
		}
	}
	return unnamed
}

// locking is what an acquire or a release asks for, and its query. A body is written to the key; in
// the shared mode there may be none (R10).
func (c *remote) locking(asks kind, key, value string) (input, url.Values) {
	in := input{
		kind: asks, key: key, value: value, session: c.s.id, shared: c.shared[key],
	}
	verb := map[kind]string{acquire: "acquire", release: "release"}[asks]
	query := url.Values{verb: {c.s.id}}
	if in.shared {
		query.Set("lockd-mode", "shared")
		if c.chance.IntN(2) == 0 {
			in.value, in.keeps = "", true
		}
	}
	return in, query
}

func (c *remote) acquire(key, value string) {
	if c.shared == nil {
		c.shared = map[string]bool{}
	}
	c.shared[key] = c.chance.IntN(2) == 0
	in, query := c.locking(acquire, key, value)
	r := c.record(in, c.w.stamp())
	got := c.ask(http.MethodPut, "/v1/kv/"+key, query, in.value)
	outcome := verdict(got)
	switch {
	case got.failed() != nil:
	case outcome == refused:
		if r.why = got.obstacle(); r.why == unnamed {
			c.w.violation("X25: %q was not acquired, and the answer does not say why", key)
		}
	default:
		if r.entry.fence = got.fence(); r.entry.fence == 0 {
			c.w.violation("X1: %q was acquired, and the answer has no fence", key)
		}
		q := lockd.Sequencer{Key: key, Fence: r.entry.fence}
		if in.shared {
			q.Mode = lockd.Shared
		}
		c.w.told(c.era, q, nil)
	}
	c.answered(r, got, outcome)
}

func (c *remote) read(key string) {
	r := c.record(input{kind: read, key: key}, c.since)
	got := c.ask(http.MethodGet, "/v1/kv/"+key, nil, "")
	var list []struct {
		Value                               []byte
		Session                             string
		CreateIndex, ModifyIndex, LockIndex uint64
	}
	if got.err == nil && got.status == http.StatusOK {
		if err := json.Unmarshal([]byte(got.body), &list); err != nil || len(list) != 1 {
			c.w.violation("read of %q: %v: %s", key, err, got.body)
			return
		}
		e := list[0]
		r.entry = entry{
			exists: true, value: string(e.Value), session: e.Session, create: e.CreateIndex,
			mod: e.ModifyIndex, lockIndex: e.LockIndex,
		}
	}
	c.answered(r, got, done)
}

func (c *remote) destroy() {
	call := c.w.stamp()
	got := c.ask(http.MethodPut, "/v1/session/destroy/"+c.s.id, nil, "")
	c.closed(c.s, closing{call: call}, got.failed())
	c.s = nil
	if got.failed() != nil {
		c.pause()
	}
}

// Ensure that a request does nothing in a history whose server has the port that the client's own
// server had before it was closed.
func TestHistories_PortOfAnotherServer(t *testing.T) {
	mine, other := newWorld("", 1), newWorld("", 2)
	for _, w := range []*world{mine, other} {
		if err := w.open(""); err != nil {
			t.Fatal(err)
		}
	}
	c := &remote{caller: newCaller(mine, 0), loopback: true}
	c.begin(mine.current.Load())
	c.newSession()
	if c.s == nil {
		t.Fatal("the client's own server refuses it")
	}
	c.era.finish()
	close(c.era.over)
	c.s, c.base = nil, other.current.Load().server.URL
	c.newSession()
	c.client.CloseIdleConnections()
	e := other.current.Load()
	if n := e.db.Stats().Sessions; c.s != nil || n > 0 {
		t.Errorf("the client has session %+v, and the other history has %d, want none", c.s, n)
	}
	e.finish()
}
