package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
)

// Ensure that a line at the start says what is served and where, and one at the end why it ends and
// what that ends.
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

// Ensure that a level or format that there is none of is refused, and that a level is kept.
func TestServe_Log_Flags(t *testing.T) {
	t.Parallel()
	for text, args := range map[string][]string{
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
