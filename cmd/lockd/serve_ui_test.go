package main

import (
	"bufio"
	"io"
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

// Ensure that the pages are refused as the API is: to foreign host names of this machine, and to
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

// Ensure that the pages need the token too, as a password that works nowhere else, and that a
// browser that has not been asked for it yet does not count as a refusal.
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

// Ensure that an action of the pages needs the token, and the token of the form as well.
func TestServe_UIActions(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	write(t, file, []byte("secret"))
	s := served(t, "--memory", "--token-file", file, "--ui-actions")
	ask := func(
		method, path, password, body string, cookies ...*http.Cookie,
	) (*http.Response, string) {
		t.Helper()
		r := newRequest(t, method, s.url+path, body)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.SetBasicAuth("anybody", password)
		if !strings.HasPrefix(path, "/ui/") {
			r.Header.Set("X-Consul-Token", password)
		}
		for _, cookie := range cookies {
			r.AddCookie(cookie)
		}
		response, err := http.DefaultTransport.RoundTrip(r) // a transport follows no redirect
		if err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		return response, string(answer)
	}
	_, body := ask("PUT", "/v1/session/create", "secret", "")
	var made struct{ ID string }
	s.decode(result{out: body}, &made)
	lives := func() bool {
		t.Helper()
		_, body := ask("GET", "/v1/session/info/"+made.ID, "secret", "")
		return strings.Contains(body, made.ID)
	}
	shown, body := ask("GET", "/ui/sessions?id="+made.ID, "secret", "")
	token := regexp.MustCompile(`name="token" value="(\w+)"`).FindStringSubmatch(body)
	if token == nil || len(shown.Cookies()) != 1 {
		t.Fatalf("no form in %s", body)
	}
	cookie, form := shown.Cookies()[0], "session="+made.ID+"&token="+token[1]
	for _, c := range []struct {
		what, password, form string
		want                 int
	}{
		{"without the token", "", form, http.StatusUnauthorized},
		{"with another token", "guess", form, http.StatusUnauthorized},
		{"without the form's token", "secret", "session=" + made.ID, http.StatusForbidden},
	} {
		got, answer := ask("POST", "/ui/end-session", c.password, c.form, cookie)
		if got.StatusCode != c.want || !lives() {
			t.Errorf("%s: got %d, %s", c.what, got.StatusCode, answer)
		}
	}
	got, answer := ask("POST", "/ui/end-session", "secret", form, cookie)
	if got.StatusCode != http.StatusSeeOther || lives() {
		t.Errorf("got %d, %s", got.StatusCode, answer)
	}
}
