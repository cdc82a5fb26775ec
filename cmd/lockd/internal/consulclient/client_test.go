package consulclient_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockd/lockd/cmd/lockd/internal/consulclient"
)

// script is a server that answers everything alike, and remembers what it was asked.
type script struct {
	status int
	header http.Header
	body   string

	asked string // method, URL and body of the last request
	token string
}

func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	s.asked, s.token = r.Method+" "+r.URL.String(), r.Header.Get("X-Consul-Token")
	if r.Body != nil {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		s.asked += " " + string(body)
	}
	rec := httptest.NewRecorder()
	for name, values := range s.header {
		rec.Header()[name] = values
	}
	rec.WriteHeader(s.status)
	rec.Body.WriteString(s.body)
	return rec.Result(), nil
}

func scripted(t *testing.T, s *script, address string) *consulclient.Client {
	t.Helper()
	c, err := consulclient.New(consulclient.Options{
		Address: address, Token: "secret", Transport: s,
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Ensure that a key of any length leaves the error about it one that can be read.
func TestError_LongPath(t *testing.T) {
	err := &consulclient.Error{
		Method: "PUT", Path: "/v1/kv/" + strings.Repeat("k", 20_000), Status: 400, Text: "too long",
	}
	text := err.Error()
	if len(text) > 200 || !strings.HasPrefix(text, "PUT /v1/kv/kkk") ||
		!strings.HasSuffix(text, "k: 400: too long") {
		t.Errorf("%d bytes: %.300s", len(text), text)
	}
}

// Ensure that each call asks for what Consul's API says, on the address given, with the token.
func TestClient_Requests(t *testing.T) {
	ctx := t.Context()
	index := uint64(7)
	found := &script{status: 200, header: http.Header{"X-Consul-Index": {"9"}},
		body: `[{"Key":"k","Value":"dg==","Flags":18446744073709551615,"ModifyIndex":8}]`}
	yes := &script{status: 200, body: "true"}
	sessions := &script{status: 200, body: `[{"ID":"id","LockDelay":15000000000}]`}
	for _, test := range []struct {
		server  *script
		address string
		asked   string
		call    func(c *consulclient.Client) error
	}{
		{found, "", "GET http://127.0.0.1:8500/v1/kv/a/b%20c%25/%C3%A4?consistent=",
			func(c *consulclient.Client) error {
				r, err := c.Get(ctx, "a/b c%/ä", consulclient.Wait{})
				if !r.Found || string(r.Entry.Value) != "v" || r.Entry.Flags != 1<<64-1 ||
					r.Index != 9 || r.Entry.ModifyIndex != 8 {
					t.Errorf("got %+v", r)
				}
				return err
			}},
		{found, "https://consul.example/base/",
			"GET https://consul.example/base/v1/kv/k?consistent=&index=3&wait=1500ms",
			func(c *consulclient.Client) error {
				_, err := c.Get(ctx, "k", consulclient.Wait{Index: 3, For: 1500 * time.Millisecond})
				return err
			}},
		{found, "h:1", "GET http://h:1/v1/kv/p/?consistent=&recurse=",
			func(c *consulclient.Client) error {
				_, _, err := c.List(ctx, "p/", consulclient.Wait{})
				return err
			}},
		{yes, "h:1", "PUT http://h:1/v1/kv//?cas=0&flags=5 v", func(c *consulclient.Client) error {
			_, err := c.Put(ctx, "/", []byte("v"),
				consulclient.PutOptions{Flags: 5, CAS: new(uint64)})
			return err
		}},
		{yes, "h:1", "PUT http://h:1/v1/kv/k ", func(c *consulclient.Client) error {
			_, err := c.Put(ctx, "k", nil, consulclient.PutOptions{})
			return err
		}},
		{yes, "h:1", "DELETE http://h:1/v1/kv/k?cas=7", func(c *consulclient.Client) error {
			_, err := c.Delete(ctx, "k", consulclient.DeleteOptions{CAS: &index})
			return err
		}},
		{yes, "h:1", "DELETE http://h:1/v1/kv/k?recurse=", func(c *consulclient.Client) error {
			return c.DeletePrefix(ctx, "k")
		}},
		{sessions, "h:1", "GET http://h:1/v1/session/list", func(c *consulclient.Client) error {
			s, _, err := c.Sessions(ctx, consulclient.Wait{})
			if len(s) != 1 || s[0].LockDelay != 15*time.Second {
				t.Errorf("got %+v", s)
			}
			return err
		}},
		{sessions, "h:1", "GET http://h:1/v1/session/info/a%2Fb",
			func(c *consulclient.Client) error {
				_, err := c.Session(ctx, "a/b")
				return err
			}},
		{yes, "h:1", "PUT http://h:1/v1/session/destroy/id", func(c *consulclient.Client) error {
			return c.Destroy(ctx, "id")
		}},
	} {
		if err := test.call(scripted(t, test.server, test.address)); err != nil {
			t.Errorf("%s: %v", test.asked, err)
		}
		if test.server.asked != test.asked || test.server.token != "secret" {
			t.Errorf("asked %q with token %q, want %q", test.server.asked, test.server.token,
				test.asked)
		}
	}
}

// Ensure that a session is made as asked, with a lock-delay that no server takes for seconds.
func TestClient_CreateSession(t *testing.T) {
	s := &script{status: 500, body: "Invalid Session TTL\n"}
	_, err := scripted(t, s, "h:1").Keep(t.Context(), consulclient.SessionOptions{
		Name: "n", TTL: 15 * time.Second, LockDelay: 20 * time.Nanosecond, DeleteKeys: true,
	})
	if want := `PUT http://h:1/v1/session/create ` +
		`{"Name":"n","TTL":"15000ms","LockDelay":"1ms","Behavior":"delete"}`; s.asked != want {
		t.Errorf("asked %q, want %q", s.asked, want)
	}
	if refused, ok := errors.AsType[*consulclient.Error](err); !ok || refused.Status != 500 ||
		err.Error() != "PUT /v1/session/create: 500: Invalid Session TTL" {
		t.Errorf("got %v", err)
	}
}

// Ensure that what a server should not answer is an error, never taken for success.
func TestClient_Answers(t *testing.T) {
	ctx := t.Context()
	get := func(c *consulclient.Client) error {
		_, err := c.Get(ctx, "k", consulclient.Wait{})
		return err
	}
	put := func(c *consulclient.Client) error {
		_, err := c.Put(ctx, "k", nil, consulclient.PutOptions{})
		return err
	}
	for _, test := range []struct {
		name   string
		server *script
		call   func(c *consulclient.Client) error
		text   string
	}{
		{"Forbidden", &script{status: 403, body: "Permission denied"}, get,
			"GET /v1/kv/k: 403: Permission denied"},
		{"NoText", &script{status: 502}, get, "GET /v1/kv/k: 502: Bad Gateway"},
		{"OtherServer", &script{status: 404, body: "page not found"}, get,
			"GET /v1/kv/k: 404: page not found"},
		{"NoJSON", &script{status: 200, body: "<html>"}, get, `answer "<html>"`},
		{"Index", &script{status: 200, header: http.Header{"X-Consul-Index": {"x"}}}, get,
			"X-Consul-Index"},
		{"Redirect", &script{status: 301, header: http.Header{"Location": {"/v1/kv/other"}}}, put,
			"301"},
		{"NoVerdict", &script{status: 200, body: `"dHJ1ZQ=="`}, put, "answer"},
		{"NoID", &script{status: 200, body: "{}"}, func(c *consulclient.Client) error {
			_, err := c.Keep(ctx, consulclient.SessionOptions{TTL: time.Second})
			return err
		}, "has no session ID"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := test.call(scripted(t, test.server, "h:1"))
			if err == nil || !strings.Contains(err.Error(), test.text) {
				t.Errorf("got %v, want %q", err, test.text)
			}
		})
	}
	_, err := scripted(t, &script{status: 200, body: "[]"}, "h:1").Session(ctx, "id")
	if !errors.Is(err, consulclient.ErrNoSession) {
		t.Errorf("no session: got %v", err)
	}
	r, err := scripted(t, &script{status: 404, header: http.Header{"X-Consul-Index": {"9"}}},
		"h:1").Get(ctx, "k", consulclient.Wait{})
	if err != nil || r.Found || r.Index != 9 {
		t.Errorf("no key: got %+v, %v", r, err)
	}
}

func TestNew_Address(t *testing.T) {
	for _, address := range []string{
		"unix://", "http://", "http://h/?dc=a", "http://h/#a", "ftp://h", "http://[",
		"http://user:secret@h",
	} {
		_, err := consulclient.New(consulclient.Options{Address: address})
		if err == nil || strings.Contains(err.Error(), "secret@") {
			t.Errorf("%q: got %v", address, err)
		}
	}
}

// Ensure that a server that does not answer does not keep anybody for ever: a read that waits is
// given that time too.
func TestClient_NoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := consulclient.New(consulclient.Options{Transport: silent{}})
		if err != nil {
			t.Fatal(err)
		}
		for wait, want := range map[time.Duration]time.Duration{
			0: 10 * time.Second, 16 * time.Minute: 17*time.Minute + 10*time.Second,
		} {
			began := time.Now()
			_, err = c.Get(t.Context(), "k", consulclient.Wait{Index: 1, For: wait})
			if got := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || got != want {
				t.Errorf("wait %v: got %v after %v, want it after %v", wait, err, got, want)
			}
		}
	})
}

type silent struct{}

func (silent) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// Ensure that a server that cannot be reached is told from one that does not answer well, and that
// the error says which it is.
func TestClient_Unreachable(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("refused")}
	for _, test := range []struct {
		err         error
		unreachable bool
		text        string
	}{
		{refused, true, "no server can be reached at http://h:1: dial tcp: refused"},
		{&net.OpError{Op: "read", Net: "tcp", Err: errors.New("reset")}, false, "reset"},
		{errors.New("no certificate"), false, "no certificate"},
	} {
		c, err := consulclient.New(consulclient.Options{
			Address: "h:1", Transport: failing{test.err},
		})
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Get(t.Context(), "k", consulclient.Wait{})
		if errors.Is(err, consulclient.ErrUnreachable) != test.unreachable ||
			!errors.Is(err, test.err) || !strings.Contains(err.Error(), test.text) {
			t.Errorf("%v: got %v", test.err, err)
		}
	}
}

// failing sends nothing.
type failing struct{ err error }

func (f failing) RoundTrip(*http.Request) (*http.Response, error) { return nil, f.err }
