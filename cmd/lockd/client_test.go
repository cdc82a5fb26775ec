package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/consul/api"
	"github.com/urfave/cli/v3"

	"github.com/lockd/lockd"
)

// nowhere is an address without a server.
const nowhere = "127.0.0.1:1"

// Ensure that without a server every command that uses one says which address it tried and what to
// do, whether a flag or the environment has named the address.
func TestClient_NoServer(t *testing.T) {
	arguments := map[string][]string{
		"lock":            {"k", "true"},
		"locks":           nil,
		"watch":           {"p"},
		"kv get":          {"k"},
		"kv put":          {"k", "v"},
		"kv delete":       {"k"},
		"kv list":         nil,
		"kv export":       nil,
		"kv import":       nil,
		"session list":    nil,
		"session info":    {"0c0ffee0-0000-0000-0000-000000000000"},
		"session destroy": {"0c0ffee0-0000-0000-0000-000000000000"},
	}
	const input = `[{"key":"k","flags":0,"value":"dg=="}]` // for kv import
	for _, name := range clients(nil, newRoot()) {
		t.Run(name, func(t *testing.T) {
			own, known := arguments[name]
			if !known {
				t.Fatal("this test has no arguments for it")
			}
			code := exitFailed
			if name == "lock" {
				code = exitLockFailed
			}
			wants := func(args []string) {
				t.Helper()
				r := command(t, input, args...)
				r.wants(t, code, "no server can be reached at http://"+nowhere+": ")
				r.wants(t, code, "refused; start one with lockd serve, or name another with "+
					"--http-addr or CONSUL_HTTP_ADDR\n")
			}
			flagged := append(strings.Fields(name), "--http-addr", nowhere)
			wants(append(flagged, own...))
			t.Setenv("CONSUL_HTTP_ADDR", nowhere)
			wants(append(strings.Fields(name), own...))
		})
		delete(arguments, name)
	}
	if len(arguments) > 0 {
		t.Errorf("there are no such commands: %v", arguments)
	}
}

// Ensure that an invalid address is refused, and that the error omits a password in it.
func TestClient_Address(t *testing.T) {
	t.Parallel()
	for _, address := range []string{
		"unix://", "http://", "http://h/?dc=a", "http://h/#a", "ftp://h", "http://[",
		"http://user:secret@h", "h:", "http://h:/base", "[::1]:",
	} {
		r := command(t, "", "kv", "list", "--http-addr", address)
		r.wants(t, exitUsage, "--http-addr: address")
		if strings.Contains(r.complaints, "secret@") {
			t.Errorf("%q: got %s", address, r.complaints)
		}
	}
}

// Ensure that an address is read as the URL that it is: its scheme in capitals, the zone of an IPv6
// address with its escape, and a query without a text.
func TestClient_AddressAsURL(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"HTTP://h:1": "http://h:1", "Https://h/Path/": "https://h/Path", "http://h:1?": "http://h:1",
		"http://[fe80::1%25eth0]:1": "http://[fe80::1%eth0]:1", "http://h/a%20b": "http://h/a b",
		"[::1]:8500": "http://[::1]:8500", "h": "http://h", "h:1/": "http://h:1",
	} {
		if got, err := addressOf(text, false); got != want || err != nil {
			t.Errorf("%q: got %q, %v, want %q", text, got, err, want)
		}
	}
}

// Ensure that every request goes to the named address, and below its path.
func TestClient_AddressWithPath(t *testing.T) {
	t.Parallel()
	db, s := testServer(t)
	asked := make(chan string, 4)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Method + " " + r.URL.Path
		http.StripPrefix("/the base", s.Config.Handler).ServeHTTP(w, r)
	}))
	defer proxy.Close()
	at := func(args ...string) {
		t.Helper()
		command(t, "", append(args, "--http-addr", proxy.URL+"/the%20base/")...).wants(t, 0, "")
	}
	at("kv", "put", "/k", "v")
	at("kv", "get", "/k")
	at("kv", "delete", "--recurse", "/")
	at("session", "list")
	for _, want := range []string{"PUT /the base/v1/kv//k", "GET /the base/v1/kv//k",
		"DELETE /the base/v1/kv//", "GET /the base/v1/session/list"} {
		if got := <-asked; got != want {
			t.Errorf("asked %q, want %q", got, want)
		}
	}
	if _, there := db.Get("/k"); there {
		t.Error("the key is not deleted")
	}
}

// Ensure that the zone of an IPv6 address, which a URL has escaped, is the one that is dialed.
func TestClient_AddressWithZone(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"kv", "list"}, {"kv", "put", "k", "v"}} {
		r := command(t, "", append(args, "--http-addr", "http://[fe80::1%25zone]:1")...)
		r.wants(t, exitFailed, "dial tcp [fe80::1%zone]:1: ")
	}
}

// Ensure that an empty environment variable counts as unset, and that the help names the variable.
func TestClient_EmptyEnvironment(t *testing.T) {
	s := served(t, "--memory")
	t.Setenv("CONSUL_HTTP_ADDR", s.url)
	empty := []string{"CONSUL_HTTP_TOKEN", "CONSUL_HTTP_TOKEN_FILE", "CONSUL_HTTP_SSL",
		"CONSUL_CACERT"}
	for _, name := range empty {
		t.Setenv(name, "")
	}
	command(t, "", "kv", "put", "k", "v").wants(t, 0, "")
	help := command(t, "", "kv", "put", "--help").out
	for _, name := range append(empty, "CONSUL_HTTP_ADDR") {
		if !strings.Contains(help, "$"+name) {
			t.Errorf("no %s in %s", name, help)
		}
	}
	t.Setenv("CONSUL_HTTP_ADDR", "")
	command(t, "", "kv", "put", "--http-addr", s.url, "k", "v").wants(t, 0, "")
}

// Ensure that a boolean variable that is neither true nor false is refused as a wrong command line,
// unless the command line sets the value.
func TestClient_WrongEnvironment(t *testing.T) {
	_, s := testServer(t)
	t.Setenv("CONSUL_HTTP_ADDR", strings.TrimPrefix(s.URL, "http://"))
	t.Setenv("CONSUL_HTTP_SSL", "maybe")
	const text = `CONSUL_HTTP_SSL "maybe" is neither true nor false; see lockd `
	inUse := fileWith(t, "v")
	db := open(t, inUse)
	command(t, "", "backup", "--wait", "0s", inUse).wants(t, exitUsage, text+"backup --help")
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	command(t, "", "kv", "list").wants(t, exitUsage, text+"kv list --help")
	command(t, "", "lock", "k", "true").wants(t, exitLockFailed, text+"lock --help")
	command(t, "", "kv", "put", "--ssl=false", "k", "v").wants(t, 0, "")
	t.Setenv("CONSUL_HTTP_SSL", "false")
	command(t, "", "kv", "put", "k", "v").wants(t, 0, "")
	t.Setenv("CONSUL_HTTP_SSL", "true")
	command(t, "", "kv", "put", "k", "v").wants(t, exitFailed, "https")

	// The official client would take any other word for false, and verify no certificate.
	encrypted := httptest.NewTLSServer(s.Config.Handler)
	defer encrypted.Close()
	t.Setenv("CONSUL_HTTP_ADDR", encrypted.URL)
	t.Setenv("CONSUL_HTTP_SSL_VERIFY", "yes")
	command(t, "", "kv", "put", "k", "v").wants(t, exitUsage,
		`CONSUL_HTTP_SSL_VERIFY "yes" is neither true nor false; see lockd kv put --help`)
	t.Setenv("CONSUL_HTTP_SSL_VERIFY", "true")
	command(t, "", "kv", "put", "k", "v").wants(t, exitFailed, "certificate")
	t.Setenv("CONSUL_HTTP_SSL_VERIFY", "0")
	command(t, "", "kv", "put", "k", "v").wants(t, 0, "")
}

// Ensure that a token on the command line, or its file, wins over a token in the environment, and
// that two tokens of one rank are refused.
func TestClient_Token(t *testing.T) {
	tokens := make(chan string, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tokens <- r.Header.Get("X-Consul-Token")
		_, _ = io.WriteString(w, "true")
	}))
	defer s.Close()
	folder := t.TempDir()
	own, other := filepath.Join(folder, "own"), filepath.Join(folder, "other")
	write(t, own, []byte("of the own file"))
	write(t, other, []byte("of the other file"))
	const text, file = "CONSUL_HTTP_TOKEN", "CONSUL_HTTP_TOKEN_FILE"
	for _, test := range []struct {
		name        string
		environment map[string]string
		args        []string
		token       string // empty: it is refused
		complaint   string
	}{
		{"Variable", map[string]string{text: "t"}, nil, "t", ""},
		{"Variable_Newline", map[string]string{text: "t\n"}, nil, "t", ""},
		{"Variable_TwoLines", map[string]string{text: "one\ntwo"}, nil, "",
			"CONSUL_HTTP_TOKEN has more than one line, or a control character; see"},
		{"FileVariable", map[string]string{file: other}, nil, "of the other file", ""},
		{"FileOverText", map[string]string{text: "t"}, []string{"--token-file", own},
			"of the own file", ""},
		{"TextOverFile", map[string]string{file: other}, []string{"--token", "own"}, "own", ""},
		{"FileOverBoth", map[string]string{text: "t", file: other},
			[]string{"--token-file", own}, "of the own file", ""},
		{"TextOverBoth", map[string]string{text: "t", file: other}, []string{"--token", "own"},
			"own", ""},
		{"TextOverFile_SameAsVariable", map[string]string{text: "t", file: other},
			[]string{"--token", "t"}, "t", ""},
		{"TwoFlags", nil, []string{"--token", "own", "--token-file", own}, "",
			"both --token and --token-file are given; see"},
		{"TwoVariables", map[string]string{text: "t", file: other}, nil, "",
			"both CONSUL_HTTP_TOKEN and CONSUL_HTTP_TOKEN_FILE are set; see"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv(text, test.environment[text])
			t.Setenv(file, test.environment[file])
			args := append([]string{"kv", "put", "--http-addr", s.URL}, test.args...)
			r := command(t, "", append(args, "k", "v")...)
			if test.token == "" {
				r.wants(t, exitUsage, test.complaint)
				return
			}
			r.wants(t, 0, "")
			sent := "nothing"
			if len(tokens) > 0 {
				sent = <-tokens
			}
			if sent != test.token {
				t.Errorf("sent %q, want %q", sent, test.token)
			}
		})
	}
}

// clients returns the names of the commands that use a server.
func clients(path []string, cmd *cli.Command) (names []string) {
	for _, sub := range cmd.Commands {
		name := append(slices.Clone(path), sub.Name)
		// The backup command reads a file, and uses a server only if that has the file open.
		if sub.Name != "backup" && slices.ContainsFunc(sub.Flags, func(f cli.Flag) bool {
			return slices.Contains(f.Names(), "http-addr")
		}) {
			names = append(names, strings.Join(name, " "))
		}
		names = append(names, clients(name, sub)...)
	}
	return names
}

// Ensure that the error about what a variable has names the variable, and no option that is not on
// the command line.
func TestClient_VariableNamed(t *testing.T) {
	absent := filepath.Join(t.TempDir(), "absent")
	t.Setenv("CONSUL_HTTP_ADDR", "tcp://h:1")
	command(t, "", "locks").wants(t, exitUsage, `lockd: CONSUL_HTTP_ADDR: address "tcp://h:1" begins`)
	command(t, "", "locks", "--http-addr", "ftp://h:1").wants(t, exitUsage, "lockd: --http-addr: ")
	t.Setenv("CONSUL_HTTP_ADDR", nowhere)
	for name, code := range map[string]int{
		"CONSUL_CAPATH": exitNotFound, "CONSUL_CLIENT_CERT": exitFailed, // there is no key
	} {
		t.Setenv(name, absent)
		command(t, "", "locks").wants(t, code, "lockd: one of CONSUL_CAPATH, "+
			"CONSUL_CLIENT_CERT and CONSUL_CLIENT_KEY: ")
		t.Setenv(name, "")
	}
}

// Ensure that the error about a file of a token or of certificates says which option, or which
// variable, names the file.
func TestClient_WrongFile(t *testing.T) {
	absent := filepath.Join(t.TempDir(), "absent")
	for name, variable := range map[string]string{
		"--token-file": "CONSUL_HTTP_TOKEN_FILE", "--ca-file": "CONSUL_CACERT",
	} {
		command(t, "", "locks", name, absent).wants(t, exitNotFound, name+": open "+absent)
		t.Setenv(variable, absent)
		command(t, "", "locks").wants(t, exitNotFound, variable+": open "+absent)
		t.Setenv(variable, "")
	}
}

// Ensure that the error about an address where something else answers has the beginning of the
// answer, and not a whole page.
func TestClient_AnotherServer(t *testing.T) {
	page := strings.Repeat("<p>no such page</p>\n", 200)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(page))
	}))
	defer other.Close()
	r := command(t, "", "kv", "get", "--http-addr", other.URL, "k")
	r.wants(t, exitFailed, "200: <p>no such page</p>")
	if len(r.complaints) > 500 {
		t.Errorf("an error of %d bytes", len(r.complaints))
	}
	for _, args := range [][]string{
		{"session", "list"}, {"session", "destroy", "0c0ffee0-0000-0000-0000-000000000000"},
		{"locks"}, {"kv", "put", "k", "v"}, {"kv", "get", "k"}, {"kv", "list"}, {"watch"},
	} {
		r := command(t, "", append(args, "--http-addr", other.URL)...)
		r.wants(t, exitFailed, "; what answers at "+other.URL+" is neither lockd nor Consul\n")
	}
	r = command(t, "", "lock", "--http-addr", other.URL, "k", "true")
	r.wants(t, exitLockFailed, "; what answers at "+other.URL+" is neither lockd nor Consul\n")
}

// Ensure that a value that is not a semaphore's is not taken for the answer of another server.
func TestClient_BadSemaphore(t *testing.T) {
	db, s := testServer(t)
	flags := &lockd.PutOptions{Flags: api.SemaphoreFlagValue}
	_, err := db.Put("jobs/.lock", []byte("no JSON"), flags)
	if err != nil {
		t.Fatal(err)
	}
	r := command(t, "", "lock", "--http-addr", s.URL, "-n", "2", "jobs", "true")
	r.wants(t, exitLockFailed, `key "jobs/.lock": invalid character`)
	if strings.Contains(r.complaints, "neither lockd nor Consul") {
		t.Error(r.complaints)
	}
}

// Ensure that the error about an answer that is cut off names the server.
func TestClient_AnswerCutOff(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Consul-Index", "9")
		w.Header().Set("Content-Length", "9")
		_, _ = w.Write([]byte(`[{"Key"`))
	}))
	defer s.Close()
	for _, args := range [][]string{
		{"kv", "get", "k"}, {"kv", "put", "k", "v"}, {"session", "list"},
	} {
		command(t, "", append(args, "--http-addr", s.URL)...).wants(t, exitFailed,
			"read the answer of "+s.URL+": unexpected EOF\n")
	}
}
