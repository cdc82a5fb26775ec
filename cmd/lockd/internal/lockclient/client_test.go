package lockclient_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/lockd/lockd/cmd/lockd/internal/lockclient"
)

// script is a server that answers everything alike, and remembers what it was asked.
type script struct {
	status int
	header http.Header
	body   string

	asked string // method, URL and body of the last request
	token string
	login string // user and password
}

func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	s.asked, s.token = r.Method+" "+r.URL.String(), r.Header.Get("X-Consul-Token")
	user, password, _ := r.BasicAuth()
	s.login = user + ":" + password
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

// Ensure that an error about a key can be read, however long the key is.
func TestClient_LongKey(t *testing.T) {
	c := over(t, &script{status: 400, body: "too long"})
	key := strings.Repeat("k", 20_000)
	_, _, err1 := c.Get(t.Context(), key, lockclient.Wait{})
	_, _, err2 := c.List(t.Context(), key, lockclient.Wait{})
	_, err3 := c.Put(t.Context(), &api.KVPair{Key: key}, nil)
	for _, err := range []error{err1, err2, err3} {
		text := fmt.Sprint(err)
		if len(text) > 200 || !strings.Contains(text, "/v1/kv/kkk") ||
			!strings.HasSuffix(text, ": 400: too long") {
			t.Errorf("%d bytes: %.300s", len(text), text)
		}
	}
}

// Ensure that each call sends the request of Consul's API, with the token, also for keys that the
// official client cannot use.
func TestClient_Requests(t *testing.T) {
	ctx := t.Context()
	none, index := uint64(0), uint64(7)
	found := &script{status: 200, header: http.Header{"X-Consul-Index": {"9"}},
		body: `[{"Key":"k","Value":"dg==","Flags":18446744073709551615,"ModifyIndex":8}]`}
	yes := &script{status: 200, body: "true"}
	for _, test := range []struct {
		server *script
		asked  string
		call   func(c *lockclient.Client) error
	}{
		{found, "GET http://h:1/v1/kv/a/b%20c%25/%C3%A4?consistent=",
			func(c *lockclient.Client) error {
				pair, last, err := c.Get(ctx, "a/b c%/ä", lockclient.Wait{})
				if pair == nil || string(pair.Value) != "v" || pair.Flags != 1<<64-1 ||
					last != 9 || pair.ModifyIndex != 8 {
					t.Errorf("got %+v, %d", pair, last)
				}
				return err
			}},
		{found, "GET http://h:1/v1/kv/k?consistent=&index=3&wait=1500ms",
			func(c *lockclient.Client) error {
				wait := lockclient.Wait{Index: 3, For: 1500 * time.Millisecond}
				_, _, err := c.Get(ctx, "k", wait)
				return err
			}},
		{found, "GET http://h:1/v1/kv//k?consistent=", func(c *lockclient.Client) error {
			_, _, err := c.Get(ctx, "/k", lockclient.Wait{})
			return err
		}},
		{found, "GET http://h:1/v1/kv/p/?consistent=&recurse=",
			func(c *lockclient.Client) error {
				_, _, err := c.List(ctx, "p/", lockclient.Wait{})
				return err
			}},
		{found, "GET http://h:1/v1/kv//?consistent=&recurse=",
			func(c *lockclient.Client) error {
				_, _, err := c.List(ctx, "/", lockclient.Wait{})
				return err
			}},
		{yes, "PUT http://h:1/v1/kv//?cas=0&flags=5 v", func(c *lockclient.Client) error {
			_, err := c.Put(ctx, &api.KVPair{Key: "/", Value: []byte("v"), Flags: 5}, &none)
			return err
		}},
		{yes, "PUT http://h:1/v1/kv/k%25%FF ", func(c *lockclient.Client) error {
			_, err := c.Put(ctx, &api.KVPair{Key: "k%\xff"}, nil)
			return err
		}},
		{yes, "DELETE http://h:1/v1/kv/k?cas=7", func(c *lockclient.Client) error {
			_, err := c.Delete(ctx, "k", &index)
			return err
		}},
		{yes, "DELETE http://h:1/v1/kv//k?recurse=", func(c *lockclient.Client) error {
			return c.DeletePrefix(ctx, "/k")
		}},
	} {
		if err := test.call(over(t, test.server)); err != nil {
			t.Errorf("%s: %v", test.asked, err)
		}
		if test.server.asked != test.asked || test.server.token != "secret" {
			t.Errorf("asked %q with token %q, want %q", test.server.asked, test.server.token,
				test.asked)
		}
	}
}

// Ensure that reads and writes use one namespace, partition and login, also those of the
// environment.
func TestClient_Environment(t *testing.T) {
	s := &script{status: 200, body: "true", header: http.Header{"X-Consul-Index": {"9"}}}
	t.Setenv("CONSUL_NAMESPACE", "n")
	t.Setenv("CONSUL_PARTITION", "p")
	t.Setenv("CONSUL_HTTP_AUTH", "user:password")
	c := over(t, s)
	for _, call := range []func() error{
		func() error { _, _, err := c.Get(t.Context(), "k", lockclient.Wait{}); return err },
		func() error { _, err := c.Put(t.Context(), &api.KVPair{Key: "k"}, nil); return err },
		func() error { _, err := c.Delete(t.Context(), "k", nil); return err },
	} {
		_ = call() // the answer does not fit a read
		if !strings.Contains(s.asked, "ns=n&partition=p") || s.login != "user:password" {
			t.Errorf("asked %q with login %q", s.asked, s.login)
		}
	}
}

// Ensure that the login of a configuration comes before that of the environment.
func TestClient_Login(t *testing.T) {
	s := &script{status: 200, body: "true"}
	t.Setenv("CONSUL_HTTP_AUTH", "user:password")
	c, err := lockclient.New(api.Config{Address: "http://h:1",
		HttpAuth:   &api.HttpBasicAuth{Username: "mine", Password: "own"},
		HttpClient: &http.Client{Transport: s}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Delete(t.Context(), "k", nil); err != nil || s.login != "mine:own" {
		t.Errorf("login %q, %v", s.login, err)
	}
}

// Ensure that a write that a server redirects is an error: the request that would follow is a read.
func TestClient_Redirect(t *testing.T) {
	there := &script{status: 200, body: "true", header: http.Header{"X-Consul-Index": {"9"}}}
	c := over(t, roundTrip(func(r *http.Request) (*http.Response, error) {
		if r.URL.Path == "/v1/kv/other" {
			return there.RoundTrip(r)
		}
		to := http.Header{"Location": {"/v1/kv/other"}}
		return (&script{status: http.StatusMovedPermanently, header: to}).RoundTrip(r)
	}))
	done, err := c.Put(t.Context(), &api.KVPair{Key: "k"}, nil)
	if done || err == nil || there.asked != "" {
		t.Errorf("put: %t, %v, and then asked %q", done, err, there.asked)
	}
}

// Ensure that a session is made as asked, with a lock-delay that no server reads as seconds.
func TestClient_CreateSession(t *testing.T) {
	s := &script{status: 500, body: "Invalid Session TTL\n"}
	_, err := over(t, s).Keep(t.Context(), lockclient.SessionOptions{
		Name: "n", TTL: 15 * time.Second, LockDelay: 20 * time.Nanosecond, DeleteKeys: true,
	})
	if want := "PUT http://h:1/v1/session/create " +
		`{"Name":"n","TTL":"15000ms","LockDelay":"1ms","Behavior":"delete"}`; s.asked != want+"\n" {
		t.Errorf("asked %q, want %q", s.asked, want)
	}
	if refused, ok := errors.AsType[*lockclient.Error](err); !ok || refused.Status != 500 ||
		refused.Error() != "500: Invalid Session TTL" {
		t.Errorf("got %v", err)
	}
}

// Ensure that an answer that a server should not give is an error, and never taken for success.
func TestClient_Answers(t *testing.T) {
	ctx := t.Context()
	get := func(c *lockclient.Client) error {
		_, _, err := c.Get(ctx, "k", lockclient.Wait{})
		return err
	}
	put := func(c *lockclient.Client) error {
		_, err := c.Put(ctx, &api.KVPair{Key: "k"}, nil)
		return err
	}
	for _, test := range []struct {
		name   string
		server *script
		call   func(c *lockclient.Client) error
		text   string
	}{
		{"Forbidden", &script{status: 403, body: "Permission denied"}, get,
			"403: Permission denied"},
		{"NoText", &script{status: 502}, get, "502: Bad Gateway"},
		{"OtherServer", &script{status: 404, body: "page not found"}, get,
			"404: page not found"},
		{"NoJSON", &script{status: 200, body: "<html>"}, get, "200: <html>"},
		{"Index0", &script{status: 200, header: http.Header{"X-Consul-Index": {"0"}},
			body: `[{"Key":"k"}]`}, get, `200: [{"Key":"k"}]`},
		{"Index", &script{status: 200, header: http.Header{"X-Consul-Index": {"x"}}}, get,
			"200: OK"},
		{"Redirect", &script{status: 301, header: http.Header{"Location": {"/v1/kv/other"}}}, put,
			"301"},
		{"NoVerdict", &script{status: 200, body: `"dHJ1ZQ=="`}, put, "answer"},
		{"NoID", &script{status: 200, body: "{}"}, func(c *lockclient.Client) error {
			_, err := c.Keep(ctx, lockclient.SessionOptions{TTL: time.Second})
			return err
		}, "has no session ID"},
		{"NotEnded", &script{status: 200, body: "<html>"}, func(c *lockclient.Client) error {
			return c.EndSession(ctx, "0c0ffee0-0000-0000-0000-000000000000")
		}, `answer "<html>"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := test.call(over(t, test.server))
			if err == nil || !strings.Contains(err.Error(), test.text) {
				t.Errorf("got %v, want %q", err, test.text)
			}
		})
	}
	absent := &script{status: 404, header: http.Header{"X-Consul-Index": {"9"}}}
	pair, index, err := over(t, absent).Get(ctx, "k", lockclient.Wait{})
	if err != nil || pair != nil || index != 9 {
		t.Errorf("no key: got %+v, %d, %v", pair, index, err)
	}
}

// Ensure that a server that does not answer keeps no caller for ever. A read that waits has its
// wait time on top.
func TestClient_NoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := over(t, silent{})
		for wait, want := range map[time.Duration]time.Duration{
			0: 10 * time.Second, 16 * time.Minute: 17*time.Minute + 10*time.Second,
		} {
			began := time.Now()
			_, _, err := c.Get(t.Context(), "k", lockclient.Wait{Index: 1, For: wait})
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

// Ensure that an unreachable server is told apart from a server with a bad answer, and that the
// error says which it is.
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
		_, _, err := over(t, failing{test.err}).Get(t.Context(), "k", lockclient.Wait{})
		if errors.Is(err, lockclient.ErrUnreachable) != test.unreachable ||
			!errors.Is(err, test.err) || !strings.Contains(err.Error(), test.text) {
			t.Errorf("%v: got %v", test.err, err)
		}
	}
}

// failing sends nothing.
type failing struct{ err error }

func (f failing) RoundTrip(*http.Request) (*http.Response, error) { return nil, f.err }
