package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/consul/api"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/cmd/lockd/internal/lockclient"
)

// at runs a command line against the server.
func (s *serving) at(input string, args ...string) result {
	s.t.Helper()
	return command(s.t, input, append(args, "--http-addr", s.url)...)
}

// entry reads a key.
func (s *serving) entry(key string) api.KVPair {
	s.t.Helper()
	r := s.at("", "kv", "get", "--json", key)
	r.wants(s.t, 0, "")
	var e api.KVPair
	s.decode(r, &e)
	return e
}

func (s *serving) decode(r result, v any) {
	s.t.Helper()
	if err := json.Unmarshal([]byte(r.out), v); err != nil {
		s.t.Fatalf("%v in %s", err, r.out)
	}
}

// Ensure that a value comes back byte by byte, whatever is in it, and by standard input.
func TestKV_PutGet(t *testing.T) {
	t.Parallel()
	s := served(t, "--memory")
	value := "a\x00\xff\n"
	s.at("", "kv", "put", "dir/ä b%2F", value).wants(t, 0, "")
	s.at(value+value, "kv", "put", "--flags", "18446744073709551615", "in", "-").wants(t, 0, "")
	s.at("", "kv", "put", "empty", "").wants(t, 0, "")
	for key, want := range map[string]string{
		"dir/ä b%2F": value, "in": value + value, "empty": "",
	} {
		r := s.at("", "kv", "get", key)
		if r.wants(t, 0, ""); r.out != want {
			t.Errorf("%s: got %q", key, r.out)
		}
		if e := s.entry(key); string(e.Value) != want || e.Key != key {
			t.Errorf("%s: got %+v", key, e)
		}
	}
	if e := s.entry("in"); e.Flags != 1<<64-1 {
		t.Errorf("flags %d", e.Flags)
	}
	s.at("", "kv", "get", "absent").wants(t, exitNotFound, `not found: key "absent"`)
}

// Ensure that no more of standard input is read than a value may have.
func TestKV_PutEndless(t *testing.T) {
	t.Parallel()
	var complaints bytes.Buffer
	in := &endless{}
	code := run(t.Context(), []string{"lockd", "kv", "put", "k", "-"}, in, io.Discard, &complaints)
	result{complaints: complaints.String(), code: code}.wants(t, exitFailed,
		"kv put: the value has more than 67108864 bytes")
	if in.read > lockd.MaxValueSize+1 {
		t.Errorf("%d bytes are read", in.read)
	}
}

// endless is an input that goes on for longer than a value may have.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	if e.read > lockd.MaxValueSize+1 {
		return 0, io.EOF
	}
	e.read += len(p)
	return len(p), nil
}

// Ensure that a write with an index is done only if the key has it, and that the exit code tells.
func TestKV_CAS(t *testing.T) {
	t.Parallel()
	s := served(t, "--memory")
	s.at("", "kv", "put", "--cas", "0", "k", "1").wants(t, 0, "")
	s.at("", "kv", "put", "--cas", "0", "k", "2").wants(t, exitConflict,
		`conflict: key "k" exists, but --cas is 0`)
	index := fmt.Sprint(s.entry("k").ModifyIndex)
	s.at("", "kv", "put", "--cas", index, "k", "3").wants(t, 0, "")
	s.at("", "kv", "put", "--cas", index, "k", "4").wants(t, exitConflict,
		`conflict: key "k" does not have the ModifyIndex `+index)
	s.at("", "kv", "delete", "--cas", index, "k").wants(t, exitConflict, "conflict")
	if e := s.entry("k"); string(e.Value) != "3" {
		t.Errorf("got %+v", e)
	}
	index = fmt.Sprint(s.entry("k").ModifyIndex)
	s.at("", "kv", "delete", "--cas", index, "k").wants(t, 0, "")
	s.at("", "kv", "get", "k").wants(t, exitNotFound, "")
}

// Ensure that a write that a server refuses without a reason is no success, and no matter of --cas.
func TestKV_PutRefused(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "false\n")
	}))
	defer other.Close()
	command(t, "", "kv", "put", "--http-addr", other.URL, "k", "v").wants(t, exitConflict,
		"conflict: the server refuses to write key \"k\"\n")
}

func TestKV_ListDelete(t *testing.T) {
	t.Parallel()
	s := served(t, "--memory")
	var none []api.KVPair
	if r := s.at("", "kv", "list", "--json"); r.out != "[]\n" {
		t.Errorf("empty: %+v", r)
	}
	for _, key := range []string{"b", "a/2", "a/1", "ab"} {
		s.at("", "kv", "put", key, "value of "+key).wants(t, 0, "")
	}
	for prefix, want := range map[string]string{
		"": "a/1\na/2\nab\nb\n", "a": "a/1\na/2\nab\n", "a/": "a/1\na/2\n", "absent": "",
	} {
		r := s.at("", "kv", "list", prefix)
		if r.wants(t, 0, ""); r.out != want {
			t.Errorf("%q: got %q", prefix, r.out)
		}
	}
	var entries []api.KVPair
	s.decode(s.at("", "kv", "list", "--json", "a/"), &entries)
	if len(entries) != 2 || string(entries[1].Value) != "value of a/2" {
		t.Errorf("got %+v", entries)
	}
	s.at("", "kv", "delete", "a/1").wants(t, 0, "")
	s.at("", "kv", "delete", "a/1").wants(t, 0, "")
	s.at("", "kv", "delete", "--recurse", "a").wants(t, 0, "")
	if r := s.at("", "kv", "list"); r.out != "b\n" {
		t.Errorf("got %q", r.out)
	}
	s.at("", "kv", "delete", "--recurse", "--all").wants(t, 0, "")
	s.decode(s.at("", "kv", "list", "--json"), &none)
	if len(none) != 0 {
		t.Errorf("left: %+v", none)
	}
}

// Ensure that an export has the form of Consul's, and comes back by import, with values and flags.
func TestKV_ExportImport(t *testing.T) {
	t.Parallel()
	from, to := served(t, "--memory"), served(t, "--memory")
	from.at("", "kv", "put", "--flags", "7", "dir/a", "<\x00>").wants(t, 0, "")
	from.at("", "kv", "put", "dir/b", "").wants(t, 0, "")
	from.at("", "kv", "put", "other", "").wants(t, 0, "")
	r := from.at("", "kv", "export", "dir/")
	r.wants(t, 0, "")
	if r.out != `[
	{
		"key": "dir/a",
		"flags": 7,
		"value": "PAA+"
	},
	{
		"key": "dir/b",
		"flags": 0,
		"value": ""
	}
]
` {
		t.Errorf("got %s", r.out)
	}
	to.at(r.out, "kv", "import").wants(t, 0, "")
	to.at(r.out, "kv", "import", "-").wants(t, 0, "")
	if again := to.at("", "kv", "export"); again.out != r.out {
		t.Errorf("got %s", again.out)
	}
	file := filepath.Join(t.TempDir(), "export")
	write(t, file, []byte(`[{"key":"x","flags":1,"value":"`+
		base64.StdEncoding.EncodeToString([]byte("y"))+`","namespace":"","partition":""}]`))
	to.at("", "kv", "import", file).wants(t, 0, "")
	if e := to.entry("x"); string(e.Value) != "y" || e.Flags != 1 {
		t.Errorf("got %+v", e)
	}
	if got := from.at("", "kv", "export", "absent"); got.out != "[]\n" {
		t.Errorf("nothing: got %+v", got)
	}
}

// Ensure that the error says why a server takes no key with a tab, which the server does not.
func TestKV_Unprintable(t *testing.T) {
	t.Parallel()
	s := served(t, "--memory")
	const complaint = ": 400: a key with a character that cannot be printed is taken by no server"
	for _, args := range [][]string{{"kv", "put", "\tk", "v"}, {"kv", "get", "\tk"}} {
		r := s.at("", args...)
		r.wants(t, exitFailed, complaint)
		if strings.Contains(r.complaints, "neither lockd nor Consul") {
			t.Error(r.complaints)
		}
	}
	s.end()
}

// Ensure that an export refuses a key that is not UTF-8, which would come back as another key, and
// that keys with the character that stands for such bytes are exported like any other.
func TestKV_Export_NotUTF8(t *testing.T) {
	t.Parallel()
	s := served(t, "--memory")
	s.at("", "kv", "put", "a/\ufffd", "1").wants(t, 0, "")
	s.at("", "kv", "put", "b/\xff", "2").wants(t, 0, "")
	s.at("", "kv", "put", "c/\ufffd", "3").wants(t, 0, "")
	s.at("", "kv", "put", "c/\xfe", "4").wants(t, 0, "")
	for prefix, key := range map[string]string{"b": `"b/\ufffd"`, "c": `"c/\ufffd"`, "": ``} {
		r := s.at("", "kv", "export", prefix)
		r.wants(t, exitFailed, key+" is not UTF-8")
		if r.out != "" {
			t.Errorf("%q: got %s", prefix, r.out)
		}
	}
	// The keys of one commit have one CreateIndex.
	db, both := testServer(t)
	if err := db.Update(func(tx *lockd.Txn) error {
		_, err := tx.Put("\ufffd", nil, nil)
		_, other := tx.Put("\xff", nil, nil)
		return errors.Join(err, other)
	}); err != nil {
		t.Fatal(err)
	}
	command(t, "", "kv", "export", "--http-addr", both.URL).wants(t, exitFailed, " is not UTF-8")

	r := s.at("", "kv", "export", "a")
	s.at("", "kv", "delete", "--recurse", "--all").wants(t, 0, "")
	s.at(r.out, "kv", "import").wants(t, 0, "")
	if r := s.at("", "kv", "get", "a/\ufffd"); r.out != "1" {
		t.Errorf("got %+v", r)
	}
}

// Ensure that a damaged export is refused before anything of it is written.
func TestKV_Import_Refused(t *testing.T) {
	t.Parallel()
	s := served(t, "--memory")
	whole := `[{"key":"a","flags":0,"value":"eA=="},{"key":"b","flags":0,"value":"eA=="}]`
	for damaged, complaint := range map[string]string{
		"": "it is empty",
		whole[:len(whole)-1]: "or cut off: byte 74 of 74: " +
			"unexpected end of JSON input\n",
		whole + "x":                              "byte 76 of 76: ",
		"hello":                                  "it is not JSON",
		`{"key":"a"}`:                            "not an array of keys, as kv export writes it",
		"null":                                   "not an array of keys",
		"[1]":                                    `entry 1 of 1: 1 is not an object`,
		`[{"key":1}]`:                            `entry 1 of 1: {"key":1} is not an object that`,
		`[{"flags":1}]`:                          `entry 1 of 1: {"flags":1} has no "key"`,
		"[{\"key\":\"a\xff\"}]":                  "it is not UTF-8",
		strings.Replace(whole, "eA", "e", 1):     `key "a": its "value" "e==" is not a text in`,
		strings.Replace(whole, `"eA=="`, "5", 1): `key "a": its "value" 5 is not a text`,
		strings.Replace(whole, `"b"`, `""`, 1):   `entry 2 of 2: {"key":"","flags":0,"value":"eA=`,
		strings.Replace(whole, "0", "-1", 1):     `key "a": its "flags" -1 are not a whole number`,
		`[{"key":"a\ud800"}]`:                    `entry 1 of 1: key "a\ud800" has half of a`,
		`[{"key":"\uDFFF"}]`:                     `key "\uDFFF" has half of a surrogate pair`,
		`[{"key":"\udc00\ud800"}]`:               `has half of a surrogate pair`,
		`[{"key":"\ud83dx\ude00"}]`:              `has half of a surrogate pair`,
		`[{"key":"\ud83d\ud83d\ude00"}]`:         `has half of a surrogate pair`,
		`[{"key":"\ud83d\\ude00"}]`:              `has half of a surrogate pair`,
		`[{"key":"\\\ud83d"}]`:                   `has half of a surrogate pair`,
	} {
		s.at(damaged, "kv", "import").wants(t, exitFailed, "read the export: ")
		s.at(damaged, "kv", "import").wants(t, exitFailed, complaint)
	}
	s.at("", "kv", "import", "/absent/file").wants(t, exitNotFound, "/absent/file")
	if r := s.at("", "kv", "list"); r.out != "" {
		t.Errorf("written: %q", r.out)
	}
}

// Ensure that an import sets every key that an export has, also one that a server takes in no path.
func TestKV_Import_Unprintable(t *testing.T) {
	t.Parallel()
	from, to := served(t, "--memory"), served(t, "--memory")
	_, body := send(t, http.DefaultClient, newRequest(t, "PUT", from.url+"/v1/txn", `[
		{"KV":{"Verb":"set","Key":"a\n","Value":"eA==","Flags":7}},
		{"KV":{"Verb":"set","Key":"b\u200d","Value":""}},
		{"KV":{"Verb":"set","Key":"c","Value":"eA=="}}]`))
	if !strings.Contains(body, `"Errors":null`) {
		t.Fatal(body)
	}
	r := from.at("", "kv", "export")
	to.at(r.out, "kv", "import").wants(t, 0, "")
	if again := to.at("", "kv", "export"); again.out != r.out {
		t.Errorf("got %s, want %s", again.out, r.out)
	}
}

// Ensure that a key may have any character, escaped or not: both halves of a surrogate pair, the
// character that stands for what is not UTF-8, and a text that looks like an escape.
func TestKV_Import_Escapes(t *testing.T) {
	t.Parallel()
	s := served(t, "--memory")
	for text, key := range map[string]string{
		`\ud83d\uDE00`: "\U0001f600", `\uD55c\uf900`: "\ud55c\uf900", "\U0001f600": "\U0001f600",
		`a\ufffd`: "a\ufffd", "b\ufffd": "b\ufffd", `\\ud800`: `\ud800`, `\"\/\u0064`: `"/d`,
	} {
		s.at(`[{"key":"`+text+`"}]`, "kv", "import").wants(t, 0, "")
		if r := s.at("", "kv", "get", key); r.code != 0 {
			t.Errorf("%s: no key %q: %+v", text, key, r)
		}
		s.at("", "kv", "delete", key).wants(t, 0, "")
	}
	if r := s.at("", "kv", "list"); r.out != "" {
		t.Errorf("other keys: %q", r.out)
	}
}

// Ensure that sessions and locks can be listed, shown and ended.
func TestSession(t *testing.T) {
	t.Parallel()
	s := served(t, "--memory", "--node", "n1")
	for _, args := range [][]string{{"session", "list"}, {"locks"}} {
		if r := s.at("", args...); r != (result{}) {
			t.Errorf("%q: got %+v, want nothing", args, r)
		}
		if r := s.at("", append(args, "--json")...); r.out != "[]\n" {
			t.Errorf("%q: got %+v", args, r)
		}
	}
	_, body := send(t, http.DefaultClient, newRequest(t, "PUT", s.url+"/v1/session/create",
		`{"Name": "the name", "TTL": "30s", "LockDelay": "0s"}`))
	var made struct{ ID string }
	s.decode(result{out: body}, &made)
	for _, key := range []string{"dir/k", "other"} {
		_, body = send(t, http.DefaultClient,
			newRequest(t, "PUT", s.url+"/v1/kv/"+key+"?acquire="+made.ID, "v"))
		if body != "true" {
			t.Fatal(body)
		}
	}
	s.at("", "kv", "put", "free", "v").wants(t, 0, "")

	if r := s.at("", "session", "list"); r.out != made.ID+"  30s  release  n1  the name\n" {
		t.Errorf("list: got %+v", r)
	}
	var sessions []api.SessionEntry
	s.decode(s.at("", "session", "list", "--json"), &sessions)
	var info api.SessionEntry
	s.decode(s.at("", "session", "info", "--json", made.ID), &info)
	if len(sessions) != 1 || sessions[0].ID != made.ID || info.ID != made.ID ||
		info.Name != "the name" || info.TTL != "30s" || info.Node != "n1" ||
		info.CreateIndex != sessions[0].CreateIndex {
		t.Errorf("got %+v, %+v", sessions, info)
	}
	r := s.at("", "session", "info", made.ID)
	for _, want := range []string{"the name", "30s", "serfHealth", "release", "n1"} {
		if !strings.Contains(r.out, want) {
			t.Errorf("no %q in %s", want, r.out)
		}
	}
	lines := strings.Split(s.at("", "locks").out, "\n")
	for i, key := range []string{"dir/k", "other"} {
		if want := key + "  held  " + made.ID + "  n1  the name  "; len(lines) != 3 ||
			!strings.HasPrefix(lines[i], want) || !strings.HasSuffix(lines[i], "s") {
			t.Errorf("got %q, want %q and how long", lines, want)
		}
	}
	var locks []lockclient.LockInfo
	s.decode(s.at("", "locks", "--json", "dir/"), &locks)
	e := s.entry("dir/k")
	want := lockclient.Party{Session: made.ID, Name: "the name", Node: "n1"}
	if len(locks) != 1 || locks[0].Key != "dir/k" || locks[0].Party != want ||
		locks[0].LockIndex != 1 || locks[0].ModifyIndex != e.ModifyIndex {
		t.Errorf("got %+v", locks)
	}

	s.at("", "session", "destroy", made.ID).wants(t, 0, "")
	s.at("", "session", "destroy", made.ID).wants(t, 0, "")
	s.at("", "session", "info", made.ID).wants(t, exitNotFound, "not found: session")
	for _, name := range []string{"info", "destroy"} {
		s.at("", "session", name, made.ID[:8]).wants(t, exitUsage, "is not a UUID; see lockd "+
			"session "+name+" --help\n")
	}
	if e := s.entry("dir/k"); e.Session != "" {
		t.Errorf("still locked: %+v", e)
	}
}
