package main

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Ensure that a log line at the start says what is served and where, and that a line at the end
// says why the server ends and what ends with it.
func TestServe_Log_StartAndEnd(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lockd.db")
	s := served(t, "--data", path)
	s.at("", "kv", "put", "k", "v").wants(t, 0, "")
	s.end()
	s = served(t, "--data", path, "--log-format", "json")
	waiting := dial(t, strings.TrimPrefix(s.url, "http://"))
	waiting.say("GET /v1/kv/k?index=%d&wait=10m HTTP/1.1\r\nHost: localhost\r\n\r\n",
		s.entry("k").ModifyIndex)
	for !strings.Contains(get(t, s.url+"/metrics"), "lockd_http_requests_serving 2") {
	}
	var lines []map[string]any
	for line := range strings.Lines(s.end()) {
		var values map[string]any
		if err := json.Unmarshal([]byte(line), &values); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		lines = append(lines, values)
	}
	if len(lines) != 2 {
		t.Fatalf("got %v", lines)
	}
	for i, want := range []map[string]any{
		{"level": "INFO", "msg": "serving", "version": version(), "file": path, "keys": 1.0,
			"sessions": 0.0, "locks": 0.0, "address": s.url},
		{"level": "INFO", "msg": "ending", "cause": "context canceled", "requests_ended": 1.0,
			"sessions_left": 0.0, "locks_left": 0.0},
	} {
		for name, value := range want {
			if lines[i][name] != value {
				t.Errorf("%s is %v, not %v", name, lines[i][name], value)
			}
		}
	}
	if lines[1]["after"].(float64) <= 0 {
		t.Errorf("served for %v", lines[1]["after"])
	}
}

// Ensure that an unknown level or format is refused, and that the level is used.
func TestServe_Log_Flags(t *testing.T) {
	t.Parallel()
	for text, args := range map[string][]string{
		"--slow -1s is less than a millisecond":                     {"--slow", "-1s"},
		"--slow 0s is less than a millisecond":                      {"--slow", "0"},
		"--slow 30ns is less than a millisecond":                    {"--slow", "30ns"},
		`"30" is not a time with its unit`:                          {"--slow", "30"},
		`--log-level "loud" is none of debug, info, warn and error`: {"--log-level", "loud"},
		`--log-format "xml" is neither text nor json`:               {"--log-format", "xml"},
		"--log-format is empty":                                     {"--log-format", ""},
	} {
		command(t, "", append([]string{"serve", "--memory"}, args...)...).wants(t, exitUsage, text)
	}
	s := served(t, "--memory", "--log-level", "error")
	if got := s.end(); got != "" {
		t.Errorf("logged %s", got)
	}
	s = served(t, "--memory", "--log-level", "DEBUG")
	s.at("", "kv", "put", "k", "v").wants(t, 0, "")
	if got := s.end(); !strings.Contains(got, "level=INFO msg=serving version=") ||
		!strings.Contains(got, `file="none, in memory"`) {
		t.Errorf("logged %s", got)
	}
}

// Ensure that a lock that is held for longer than --slow is logged, once and as a warning, and that
// no lock is logged without it.
func TestServe_Log_Slow(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want int
	}{
		{[]string{"--memory", "--slow", "1ms"}, 1},
		{[]string{"--memory"}, 0},
	} {
		s := served(t, c.args...)
		ask := func(path, body string) string {
			t.Helper()
			status, answer := send(t, http.DefaultClient, newRequest(t, "PUT", s.url+path, body))
			if status != 200 {
				t.Fatalf("%s: %d %s", path, status, answer)
			}
			return answer
		}
		var made struct{ ID string }
		s.decode(result{out: ask("/v1/session/create", `{"Name":"worker"}`)}, &made)
		ask("/v1/kv/job?acquire="+made.ID, "")
		// Each write looks at what is due.
		for granted := time.Now(); time.Since(granted) < 5*time.Millisecond; {
			ask("/v1/kv/other", "")
		}
		ask("/v1/kv/other", "last")
		log := s.end()
		if got := strings.Count(log, "lock held long"); got != c.want {
			t.Errorf("%q: logged %d times in %s", c.args, got, log)
		}
		if c.want > 0 && (!strings.Contains(log, `level=WARN msg="lock held long" key=job `) ||
			!strings.Contains(log, "name=worker held=")) {
			t.Errorf("logged %s", log)
		}
	}
}

// Ensure that failed TLS handshakes, which strangers can cause, are logged at a bounded rate, and
// whatever else the HTTP server logs at once.
func TestServe_Log_Handshakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&out, nil))
		s := newServer(defaultLimits, everybody, logger, http.NotFoundHandler())
		p := &pipes{t: t, conns: make(chan net.Conn), closed: make(chan struct{})}
		ended := make(chan error)
		go func() { ended <- s.Serve(tls.NewListener(p, new(tls.Config))) }()
		fails := func() {
			c := p.dial()
			c.say("GET / HTTP/1.1\r\n\r\n")
			c.closed()
			synctest.Wait()
		}
		for range 100 {
			fails()
		}
		time.Sleep(refusalPause)
		fails()
		s.ErrorLog.Print("another")
		want := []string{
			`level=WARN msg="connections refused: no TLS handshake" count=1 last_from="pipe: `,
			`level=WARN msg="connections refused: no TLS handshake" count=100 last_from="pipe: `,
			"level=WARN msg=another\n",
		}
		got := strings.SplitAfter(strings.TrimSuffix(out.String(), "\n")+"\n", "\n")
		if len(got) != len(want)+1 {
			t.Fatalf("got %q", got)
		}
		for i := range want {
			if !strings.Contains(got[i], want[i]) {
				t.Errorf("got %q, want %q", got[i], want[i])
			}
		}
		if err := s.stop(patience); err != nil || <-ended != http.ErrServerClosed {
			t.Errorf("ended with %v", err)
		}
	})
}
