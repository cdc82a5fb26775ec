package main

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/lockd/lockd"
)

// get returns the body at a URL, which must exist.
func get(t *testing.T, url string) string {
	t.Helper()
	status, body := send(t, http.DefaultClient, newRequest(t, http.MethodGet, url, ""))
	if status != http.StatusOK {
		t.Fatalf("%s: %d %s", url, status, body)
	}
	return body
}

// Ensure that a server has the metrics of its database and of itself in the form of Prometheus.
func TestServe_Metrics(t *testing.T) {
	t.Parallel()
	s := served(t, "--memory")
	s.at("", "kv", "put", "metrics", "v").wants(t, 0, "")
	body := get(t, s.url+"/metrics")
	for _, want := range []string{
		"# TYPE lockd_keys gauge\nlockd_keys 1\n", "\nlockd_up 1\n",
		`lockd_session_ends_total{cause="expired"} 0`, "\nlockd_http_requests_refused_total 0\n",
		"\nlockd_http_requests_serving 1\n", `lockd_build_info{version="` + version() + `"} 1`,
		"\ngo_goroutines ",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("no %q in %s", want, body)
		}
	}
	status, _ := send(t, http.DefaultClient, newRequest(t, http.MethodPost, s.url+"/metrics", ""))
	if status != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", status)
	}
	if got := s.at("", "kv", "get", "metrics"); got.out != "v" {
		t.Errorf("the key of that name: %+v", got)
	}
	if body := get(t, s.url+"/v1/agent/metrics"); !strings.Contains(body, "lockd.keys") {
		t.Errorf("the agent's: %s", body)
	}
	s.end()
}

// Ensure that the document for operators has each of the server's own metrics in a table.
func TestServe_Metrics_AreDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../doc/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	s := served(t, "--memory")
	names := regexp.MustCompile(`(?m)^# TYPE lockd_(\w+)`)
	for _, name := range names.FindAllStringSubmatch(get(t, s.url+"/metrics"), -1) {
		row := regexp.MustCompile("(?m)^\\| (`\\w+`, )*`" + name[1] + "`")
		if !row.Match(text) {
			t.Errorf("no row of a table begins with `%s`", name[1])
		}
	}
	s.end()
}

// Ensure that metrics need the token and health does not, and that refusals are counted.
func TestServe_Metrics_Token(t *testing.T) {
	t.Parallel()
	s := served(t, "--memory", "--token", "t")
	ask := func(path, token string) (int, string) {
		r := newRequest(t, http.MethodGet, s.url+path, "")
		r.Header.Set("X-Consul-Token", token)
		return send(t, http.DefaultClient, r)
	}
	for _, path := range []string{"/metrics", "/v1/agent/metrics", "/v1/lockd/locks", "/metrics/",
		"/healthz/", "//healthz", "/healthz%2F"} {
		if status, body := ask(path, "wrong"); status != http.StatusForbidden {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	if status, body := ask("/healthz", ""); status != http.StatusOK || body != "ok\n" {
		t.Errorf("health: %d %s", status, body)
	}
	if status, body := ask("/metrics", "t"); status != http.StatusOK ||
		!strings.Contains(body, "\nlockd_http_requests_refused_total 7\n") {
		t.Errorf("metrics: %d %s", status, body)
	}
	s.end()
}

// Ensure that the health is 200 until the database fails, and then 503 with the cause.
func TestServe_Health(t *testing.T) {
	t.Parallel()
	db, err := lockd.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(healthBeside(defaultLimits, db, http.NotFoundHandler()))
	defer server.Close()
	for method, want := range map[string]int{"GET": 200, "HEAD": 200, "PUT": 405} {
		r := newRequest(t, method, server.URL+"/healthz", "")
		if status, body := send(t, http.DefaultClient, r); status != want {
			t.Errorf("%s: %d %s", method, status, body)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	status, body := send(t, http.DefaultClient, newRequest(t, "GET", server.URL+"/healthz", ""))
	if status != http.StatusServiceUnavailable || body != db.Err().Error()+"\n" ||
		!errors.Is(db.Err(), lockd.ErrClosed) {
		t.Errorf("closed: %d %s", status, body)
	}
	status, _ = send(t, http.DefaultClient, newRequest(t, "GET", server.URL+"/else", ""))
	if status != http.StatusNotFound {
		t.Errorf("another path: %d", status)
	}
}
