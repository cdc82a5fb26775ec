package main

import (
	"bufio"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Ensure that the pages are served, and follow the database.
func TestServe_UI(t *testing.T) {
	t.Parallel()
	s := served(t, "--memory")
	get := func(path string) (int, string) {
		return send(t, http.DefaultClient, newRequest(t, "GET", s.url+path, ""))
	}
	if status, body := get("/ui/"); status != 200 || !strings.Contains(body, "No session waits") {
		t.Errorf("got %d, %s", status, body)
	}
	if status, body := get("/ui"); status != 200 || !strings.Contains(body, "No session waits") {
		t.Errorf("without its slash: got %d, %s", status, body)
	}
	if status, _ := get("/ui/../v1/kv/k"); status != 404 {
		t.Errorf("got %d", status)
	}
	r := newRequest(t, "GET", s.url+"/ui/", "")
	r.Header.Set("Accept", "text/event-stream")
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	lines := bufio.NewScanner(response.Body)
	until := func(text string) {
		t.Helper()
		for lines.Scan() {
			if strings.Contains(lines.Text(), text) {
				return
			}
		}
		t.Fatalf("the stream is over before %q: %v", text, lines.Err())
	}
	until("No lock is held")
	_, body := send(t, http.DefaultClient, newRequest(t, "PUT", s.url+"/v1/session/create", ""))
	var made struct{ ID string }
	s.decode(result{out: body}, &made)
	send(t, http.DefaultClient, newRequest(t, "PUT", s.url+"/v1/kv/leader?acquire="+made.ID, ""))
	until(`href="key?k=leader"`)
	s.end() // with a stream that is open
}

// Ensure that the pages are refused as the API is: to strangers' names of this machine, and to
// pages of other origins.
func TestServe_UIGuard(t *testing.T) {
	t.Parallel()
	s := served(t, "--memory")
	r := newRequest(t, "GET", s.url+"/ui/", "")
	r.Host = "evil.example"
	if status, body := send(t, http.DefaultClient, r); status != 403 {
		t.Errorf("got %d, %s", status, body)
	}
	r = newRequest(t, "GET", s.url+"/ui/", "")
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	if status, body := send(t, http.DefaultClient, r); status != 403 {
		t.Errorf("got %d, %s", status, body)
	}
	r = newRequest(t, "POST", s.url+"/ui/end-session", "")
	if status, body := send(t, http.DefaultClient, r); status != 403 ||
		!strings.Contains(body, "only show") {
		t.Errorf("got %d, %s", status, body)
	}
}

// Ensure that the pages want the token too, that it is the password there and nowhere else, and
// that a browser that was not asked yet is no refusal that counts.
func TestServe_UIToken(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	write(t, file, []byte("secret"))
	s := served(t, "--memory", "--token-file", file, "--ui-actions")
	get := func(path, password string) (int, http.Header) {
		t.Helper()
		r := newRequest(t, "GET", s.url+path, "")
		r.Close = true
		if password != "" {
			r.SetBasicAuth("anybody", password)
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		return response.StatusCode, response.Header
	}
	status, header := get("/ui/sessions", "")
	if !strings.HasPrefix(header.Get("WWW-Authenticate"), "Basic ") || status != 401 {
		t.Errorf("got %d, %v", status, header)
	}
	if status, _ := get("/ui/", "guess"); status != 401 {
		t.Errorf("got %d", status)
	}
	if status, header := get("/ui/", "secret"); status != 200 || header.Get("Set-Cookie") == "" {
		t.Errorf("got %d, %v: actions are allowed", status, header)
	}
	for _, path := range []string{"/v1/kv/?keys", "/metrics", "/uix", "/v1/kv/ui/"} {
		if status, _ := get(path, "secret"); status != 403 {
			t.Errorf("%s by a login: got %d", path, status)
		}
	}
	r := newRequest(t, "GET", s.url+"/ui/", "")
	r.Header.Set("X-Consul-Token", "secret")
	if status, _ := send(t, http.DefaultClient, r); status != 200 {
		t.Errorf("got %d", status)
	}
	r = newRequest(t, "GET", s.url+"/metrics", "")
	r.Header.Set("X-Consul-Token", "secret")
	_, body := send(t, http.DefaultClient, r)
	refused := regexp.MustCompile(`(?m)^lockd_http_requests_refused_total (\d+)$`)
	if m := refused.FindStringSubmatch(body); m == nil || m[1] != "5" {
		t.Errorf("refused: %v", m) // the guess, and the four by a login
	}
	if log := s.end(); !strings.Contains(log, "requests refused") {
		t.Error(log)
	}
}
