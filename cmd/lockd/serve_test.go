package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/lockd/lockd"
)

// serving is a lockd serve that runs in this process.
type serving struct {
	t      *testing.T
	url    string
	stop   context.CancelFunc
	ended  chan struct{}
	result result
}

// served starts lockd serve on a port of the system's choice, and returns when it accepts.
func served(t *testing.T, args ...string) *serving {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	s := &serving{t: t, stop: stop, ended: make(chan struct{})}
	read, write := io.Pipe()
	var complaints bytes.Buffer
	args = append([]string{"lockd", "serve", "--http", "127.0.0.1:0"}, args...)
	go func() {
		defer close(s.ended)
		code := run(ctx, args, strings.NewReader(""), write, &complaints)
		s.result = result{"", complaints.String(), code}
		_ = write.Close()
	}()
	t.Cleanup(func() {
		stop()
		<-s.ended
	})
	line, err := bufio.NewReader(read).ReadString('\n')
	if err != nil {
		<-s.ended
		t.Fatalf("lockd serve printed %q, and ended with %+v", line, s.result)
	}
	s.url = strings.TrimSuffix(line, "\n")
	return s
}

// end ends the server, and returns its complaints.
func (s *serving) end() string {
	s.t.Helper()
	s.stop()
	<-s.ended
	if s.result.code != 0 {
		s.t.Errorf("exit code %d: %s", s.result.code, s.result.complaints)
	}
	return s.result.complaints
}

// send sends a request on a connection of its own, and returns the status and the body.
func send(t *testing.T, c *http.Client, r *http.Request) (int, string) {
	t.Helper()
	r.Close = true
	response, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := response.Body.Close(); err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

func newRequest(t *testing.T, method, url, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Ensure that what was written is there when the file is served again, and that there are no
// complaints.
func TestServe_File(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lockd.db")
	s := served(t, "--data", path, "--log-level", "warn")
	command(t, "", "kv", "put", "--http-addr", s.url, "k", "v").wants(t, 0, "")
	command(t, "", "verify", "--wait", "0s", path).wants(t, exitInUse, "")
	if got := s.end(); got != "" {
		t.Error(got)
	}
	command(t, "", "verify", path).wants(t, 0, "")
	s = served(t, "--data", path)
	if r := command(t, "", "kv", "get", "--http-addr", s.url, "k"); r.out != "v" {
		t.Errorf("got %+v", r)
	}
	s.end()
}

// Ensure that sessions and their locks outlive the server, and that a session lives for one more
// TTL than it says.
func TestServe_Sessions(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lockd.db")
	s := served(t, "--data", path, "--node", "n", "--node-id", nodeID)
	_, body := send(t, http.DefaultClient,
		newRequest(t, "PUT", s.url+"/v1/session/create", `{"TTL": "10s"}`))
	var made struct{ ID string }
	s.decode(result{out: body}, &made)
	send(t, http.DefaultClient,
		newRequest(t, "PUT", s.url+"/v1/kv/k?acquire="+made.ID, "v"))
	before := s.entry("k")
	s.end()

	db, err := lockd.Open(path, &lockd.Options{Reopen: lockd.EndNone, Node: "n"})
	if err != nil {
		t.Fatal(err)
	}
	info := sessionsOf(db)
	if len(info) != 1 || info[0].ID.String() != made.ID || info[0].TTL != 10*time.Second ||
		info[0].Grace != 10*time.Second || info[0].Lifetime != lockd.Independent {
		t.Errorf("got %+v", info)
	}
	if node, _ := db.Snapshot().Catalog().Node("n"); node.ID != nodeID {
		t.Errorf("got %+v", node)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}

	s = served(t, "--data", path, "--node", "n")
	if after := s.entry("k"); after.Session != made.ID || after.ModifyIndex != before.ModifyIndex {
		t.Errorf("got %+v, want %+v", after, before)
	}
	s.end()
}

// Ensure that the server's node has the machine's name, unless --node gives another.
func TestServe_Node(t *testing.T) {
	t.Parallel()
	hostname, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{hostname: nil, "n": {"--node", "n"}} {
		s := served(t, append([]string{"--memory"}, args...)...)
		var self struct{ Config struct{ NodeName string } }
		_, body := send(t, http.DefaultClient, newRequest(t, "GET", s.url+"/v1/agent/self", ""))
		if s.decode(result{out: body}, &self); self.Config.NodeName != want {
			t.Errorf("%q: the node is %q, not %q", args, self.Config.NodeName, want)
		}
		s.end()
	}
}

const nodeID = "0f5a9c3e-7f0f-4c56-9f4e-6a8d3f1c2b7a"

// Ensure that many waiting queries leave room for others, and end with the server.
func TestServe_BlockedQueries(t *testing.T) {
	t.Parallel()
	const many = 500
	s := served(t, "--memory")
	s.at("", "kv", "put", "k", "v").wants(t, 0, "")
	address := strings.TrimPrefix(s.url, "http://")
	index := s.entry("k").ModifyIndex
	var waiting []*caller
	for range many {
		c := dial(t, address)
		c.say("GET /v1/kv/k?index=%d&wait=10m HTTP/1.1\r\nHost: localhost\r\n\r\n", index)
		waiting = append(waiting, c)
	}
	s.at("", "kv", "put", "other", "v").wants(t, 0, "")
	for _, c := range waiting[:many/2] {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s.at("", "kv", "put", "k", "new").wants(t, 0, "")
	for _, c := range waiting[many/2:] {
		if got := c.status(); got != 200 {
			t.Fatalf("got %d", got)
		}
		c.say("GET /v1/kv/k?index=%d&wait=10m HTTP/1.1\r\nHost: localhost\r\n\r\n",
			s.entry("k").ModifyIndex)
	}
	s.end()
	for _, c := range waiting[many/2:] {
		c.closed()
	}
}

// Ensure that a body that is too large is refused, and that the largest is taken.
func TestServe_LargeBody(t *testing.T) {
	t.Parallel()
	s := served(t, "--memory")
	const most = 512 << 10
	for size, want := range map[int]int{most: 200, most + 1: 413} {
		r := newRequest(t, "PUT", s.url+"/v1/kv/k", strings.Repeat("x", size))
		if status, body := send(t, http.DefaultClient, r); status != want {
			t.Errorf("%d bytes: got %d, %s", size, status, body)
		}
		r = newRequest(t, "PUT", s.url+"/v1/kv/k", strings.Repeat("x", size))
		r.ContentLength = -1 // chunked
		if status, body := send(t, http.DefaultClient, r); status != want {
			t.Errorf("%d bytes in chunks: got %d, %s", size, status, body)
		}
	}
	s.end()
}

// Ensure that a server that cannot or should not run is refused before anything is made.
func TestServe_Refused(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	folder := t.TempDir()
	absent, empty := filepath.Join(folder, "absent"), filepath.Join(folder, "empty")
	write(t, empty, []byte(" \n"))
	broken := damaged(t)
	for _, test := range []struct {
		code int
		text string
		args []string
	}{
		{exitUsage, "either --data FILE or --memory", nil},
		{exitUsage, "either --data FILE or --memory", []string{"--memory", "--data", absent}},
		{exitUsage, `"more" is one argument too many: it takes none`,
			[]string{"--memory", "more"}},
		{exitUsage, "--http", []string{"--memory", "--http", "no address"}},
		{exitUsage, "--http 127.0.0.1: has no port behind the colon; 0 is for any",
			[]string{"--memory", "--http", "127.0.0.1:"}},
		{exitUsage, "--http http://[::1]:0: give host:port alone, such as 127.0.0.1:8500, or unix",
			[]string{"--memory", "--http", "http://[::1]:0"}},
		{exitUsage, "reached from other machines", []string{"--memory", "--http", ":0"}},
		{exitUsage, "reached from other machines", []string{"--memory", "--http", "0.0.0.0:0"}},
		{exitUsage, "reached from other machines", []string{"--memory", "--http", "[::]:0"}},
		{exitUsage, "reached from other machines", []string{"--memory", "--http", "10.0.0.1:0"}},
		{exitUsage, "both --token and --token-file", []string{"--memory", "--token", "t",
			"--token-file", absent}},
		{exitUsage, "--token is empty; see", []string{"--memory", "--token", " "}},
		{exitUsage, "--token has more than one line, or a control character; see",
			[]string{"--memory", "--token", "one\ntwo"}},
		{exitUsage, "give --tls-cert and --tls-key, or --plain-http",
			[]string{"--memory", "--http", ":0", "--token", "t"}},
		{exitUsage, "give --tls-cert and --tls-key, or --plain-http",
			[]string{"--memory", "--http", "10.0.0.1:0", "--token", "t"}},
		{exitUsage, "give a --token-file",
			[]string{"--memory", "--http", ":0", "--plain-http"}},
		{exitNotFound, "absent", []string{"--memory", "--token-file", absent}},
		{exitFailed, "is empty", []string{"--memory", "--http", ":0", "--token-file", empty}},
		{exitUsage, "--tls-cert and --tls-key", []string{"--memory", "--tls-cert", absent}},
		{exitUsage, "--tls-cert and --tls-key", []string{"--memory", "--tls-key", absent}},
		{exitNotFound, "absent", []string{"--memory", "--tls-cert", absent, "--tls-key", absent}},
		{exitNotFound, "--tls-cert " + absent + ", --tls-key " + absent + ": ", []string{"--memory",
			"--http", ":0", "--token", "t", "--tls-cert", absent, "--tls-key", absent}},
		{exitFailed, "--tls-cert " + empty + ", --tls-key " + empty + ": ",
			[]string{"--memory", "--tls-cert", empty, "--tls-key", empty}},
		{exitUsage, "--node-id", []string{"--memory", "--node-id", "no UUID"}},
		{exitFailed, "in use; --http chooses another",
			[]string{"--memory", "--http", l.Addr().String()}},
		{exitFailed, "in use; --http chooses another",
			[]string{"--data", absent, "--http", l.Addr().String()}},
		{exitDamaged, broken, []string{"--data", broken}},
	} {
		r := command(t, "", append([]string{"serve"}, test.args...)...)
		r.wants(t, test.code, test.text)
		if r.out != "" {
			t.Errorf("%q: printed %q", test.args, r.out)
		}
	}
	if got := names(t, folder); len(got) != 1 {
		t.Errorf("made: %q", got)
	}
}

// Ensure that with a token every request needs it, that a wrong token gets nowhere, and that no
// token is ever written anywhere.
func TestServe_Token(t *testing.T) {
	t.Parallel()
	const token, wrong = "f6a3b1c0-right", "f6a3b1c0-wrong"
	file := filepath.Join(t.TempDir(), "token")
	write(t, file, []byte(token+"\n"))
	for name, args := range map[string][]string{
		"Flag": {"--token", token}, "File": {"--token-file", file},
		"Flag_Blanks": {"--token", " " + token + "\n"}, // as a header loses them too
	} {
		t.Run(name, func(t *testing.T) {
			s := served(t, append([]string{"--memory"}, args...)...)
			url := s.url + "/v1/kv/k"
			for _, test := range []struct {
				name, value string
				status      int
			}{
				{"", "", 403},
				{"X-Consul-Token", "", 403},
				{"X-Consul-Token", wrong, 403},
				{"X-Consul-Token", token + "x", 403},
				{"X-Consul-Token", token[1:], 403},
				{"X-Consul-Token", token, 200},
				{"x-consul-token", token, 200},
				{"Authorization", "Bearer " + token, 200},
				{"Authorization", "bearer " + token, 200},
				{"Authorization", "Bearer " + wrong, 403},
				{"Authorization", "Bearer ", 403},
				{"Authorization", token, 403},
				{"Authorization", "Basic " + token, 403},
			} {
				r := newRequest(t, http.MethodPut, url, "v")
				if test.name != "" {
					r.Header.Set(test.name, test.value)
				}
				status, body := send(t, http.DefaultClient, r)
				if status != test.status || status == 403 && body != "Permission denied\n" {
					t.Errorf("%s %q: got %d, %q, want %d", test.name, test.value, status, body,
						test.status)
				}
			}
			for _, path := range []string{"/", "/v1/status/leader", "/v1/nowhere", "/else",
				"/v1/kv/k?token=" + token} {
				if status, _ := send(t, http.DefaultClient,
					newRequest(t, http.MethodGet, s.url+path, "")); status != 403 {
					t.Errorf("%s without a token: got %d", path, status)
				}
			}
			all := newRequest(t, http.MethodOptions, s.url, "")
			all.URL.Opaque = "*"
			if status, _ := send(t, http.DefaultClient, all); status != 403 {
				t.Errorf("OPTIONS * without a token: got %d", status)
			}
			get := func(args ...string) result {
				args = append([]string{"kv", "get", "--http-addr", s.url}, args...)
				return command(t, "", args...)
			}
			get("k").wants(t, exitFailed, "403: Permission denied")
			get("--token", wrong, "k").wants(t, exitFailed, "403: Permission denied")
			get("--token", token, "k").wants(t, 0, "")
			get("--token-file", file, "k").wants(t, 0, "")
			if got := s.end(); strings.Contains(got, token) || strings.Contains(got, wrong) {
				t.Errorf("the token is in the log: %s", got)
			}
		})
	}
}

// Ensure that with a token the server may listen on an address that others can reach, and without
// TLS only if that is asked for.
func TestServe_AnyAddress(t *testing.T) {
	t.Parallel()
	s := served(t, "--memory", "--http", "0.0.0.0:0", "--token", "t", "--plain-http")
	_, port, err := net.SplitHostPort(strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	r := command(t, "", "kv", "list", "--http-addr", "127.0.0.1:"+port, "--token", "t")
	r.wants(t, 0, "")
	s.end()
}

// Ensure that the server uses its certificate, and that clients check it.
func TestServe_TLS(t *testing.T) {
	t.Parallel()
	borrowed := httptest.NewTLSServer(nil) // has a certificate for 127.0.0.1
	defer borrowed.Close()
	pair := borrowed.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	certFile, keyFile := filepath.Join(folder, "cert.pem"), filepath.Join(folder, "key.pem")
	write(t, certFile, pem.EncodeToMemory(
		&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]}))
	write(t, keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))

	s := served(t, "--memory", "--tls-cert", certFile, "--tls-key", keyFile)
	address, isTLS := strings.CutPrefix(s.url, "https://")
	if !isTLS {
		t.Fatalf("printed %q", s.url)
	}
	list := func(args ...string) result {
		return command(t, "", append([]string{"kv", "list"}, args...)...)
	}
	list("--http-addr", s.url).wants(t, exitFailed, "certificate")
	list("--http-addr", s.url, "--ca-file", certFile).wants(t, 0, "")
	list("--http-addr", address, "--ssl", "--ca-file", certFile).wants(t, 0, "")
	list("--http-addr", address).wants(t, exitFailed, "400")
	list("--http-addr", s.url, "--ca-file", keyFile).wants(t, exitFailed, "has no certificate")
	named := newRequest(t, http.MethodGet, s.url+"/v1/status/leader", "")
	named.Host = "lockd.example" // which the certificate proves, or does not
	if status, body := send(t, borrowed.Client(), named); status != 200 {
		t.Errorf("got %d, %s", status, body)
	}
	s.end()
}

// Ensure that the body of a POST reaches the API, which makes a prepared query of it.
func TestServe_PreparedQuery(t *testing.T) {
	t.Parallel()
	s := served(t, "--memory")
	r := newRequest(t, http.MethodPost, s.url+"/v1/query",
		`{"Name":"q","Service":{"Service":"web"}}`)
	if status, body := send(t, http.DefaultClient, r); status != 200 {
		t.Errorf("create: got %d, %s", status, body)
	}
	r = newRequest(t, http.MethodGet, s.url+"/v1/query/q/execute", "")
	status, body := send(t, http.DefaultClient, r)
	if status != 200 || !strings.HasPrefix(body, `{"Service":"web","Nodes":[]`) {
		t.Errorf("execute: got %d, %s", status, body)
	}
	s.end()
}

// Ensure that a page in a browser cannot use a server without a token by a host name that was made
// to point to this machine, with a dot or without. The machine's own names work.
func TestServe_NameOfAnotherHost(t *testing.T) {
	t.Parallel()
	open, guarded := served(t, "--memory"), served(t, "--memory", "--token", "t")
	_, port, err := net.SplitHostPort(strings.TrimPrefix(open.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	hostname, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	ask := func(s *serving, host string) (int, string) {
		r := newRequest(t, http.MethodPut, s.url+"/v1/kv/k", "v")
		r.Host = host
		r.Header.Set("X-Consul-Token", "t")
		return send(t, http.DefaultClient, r)
	}
	for host, want := range map[string]int{
		"127.0.0.1:" + port: 200, "127.0.0.1": 200, "[::1]:" + port: 200, "[::1]": 200,
		"localhost:" + port: 200, "localhost": 200, "LOCALHOST": 200, "lockd.localhost:1": 200,
		"10.1.2.3:8500": 200, hostname: 200, strings.ToUpper(hostname) + ":8500": 200,
		"consul:8500": 403, "consul": 403, hostname + "x": 403, hostname + ".example": 403,
		"evil.example": 403, "evil.example:" + port: 403, "127.0.0.1.evil.example": 403,
		"localhost.evil.example": 403, "evillocalhost.example": 403, "example.:1": 403,
	} {
		status, body := ask(open, host)
		if status != want || status == 403 && !strings.Contains(body, "--token-file") {
			t.Errorf("%s: got %d, %q, want %d", host, status, body, want)
		}
		if status, body := ask(guarded, host); status != 200 {
			t.Errorf("%s, with a token: got %d, %q", host, status, body)
		}
	}
	open.end()
	guarded.end()
}

// Ensure that a server without a token does nothing that a page of another origin asks for, and
// reads nothing for it, also if the page is of another port of this machine. An address that is
// typed into a browser is answered.
func TestServe_PageFromElsewhere(t *testing.T) {
	t.Parallel()
	s := served(t, "--memory")
	for _, test := range []struct {
		header, value string
		status        int
	}{
		{"Origin", "https://evil.example", 403}, {"Origin", "null", 403},
		{"Sec-Fetch-Site", "cross-site", 403}, {"Sec-Fetch-Site", "same-origin", 200},
		{"Sec-Fetch-Site", "same-site", 403}, {"Sec-Fetch-Site", "none", 200},
		{"Origin", s.url, 200}, {"X-Nothing", "x", 200},
	} {
		r := newRequest(t, http.MethodPost, s.url+"/v1/query",
			fmt.Sprintf(`{"Name":"%s %s","Service":{"Service":"web"}}`, test.header, test.value))
		r.Header.Set(test.header, test.value)
		if status, body := send(t, http.DefaultClient, r); status != test.status {
			t.Errorf("%s %s: got %d, %q, want %d", test.header, test.value, status, body,
				test.status)
		}
		r = newRequest(t, http.MethodGet, s.url+"/v1/kv/?keys", "")
		r.Header.Set(test.header, test.value)
		if status, body := send(t, http.DefaultClient, r); status != test.status {
			t.Errorf("read, %s %s: got %d, %q, want %d", test.header, test.value, status, body,
				test.status)
		}
	}
	s.end()
}

// Ensure that a client without the token is answered at once, also if its body does not come.
func TestServe_RefusedRequest(t *testing.T) {
	t.Parallel()
	guarded, open := served(t, "--memory", "--token", "t"), served(t, "--memory")
	for host, s := range map[string]*serving{"localhost": guarded, "evil.example": open} {
		c := dial(t, strings.TrimPrefix(s.url, "http://"))
		c.say("PUT /v1/kv/k HTTP/1.1\r\nHost: %s\r\nContent-Length: 10\r\n\r\n", host)
		if got := c.status(); got != 403 {
			t.Errorf("%s: got %d", host, got)
		}
		c.closed()
		s.end()
	}
}

// Ensure that clients that do not read their answers cost little memory, however long the answers
// are, and do not hold up other clients.
func TestServe_ClientsThatDoNotRead(t *testing.T) {
	const clients, most = 40, 256 << 10
	s := served(t, "--memory")
	for i := range 40 {
		r := newRequest(t, http.MethodPut, fmt.Sprintf("%s/v1/kv/big/%d", s.url, i),
			strings.Repeat("0123456789abcdef", 512<<10/16))
		if status, body := send(t, http.DefaultClient, r); status != 200 {
			t.Fatalf("got %d, %s", status, body)
		}
	}
	before := memoryInUse()
	var callers []*caller
	for range clients {
		c := dial(t, strings.TrimPrefix(s.url, "http://"))
		c.say("GET /v1/kv/?recurse HTTP/1.1\r\nHost: localhost\r\n\r\n")
		if _, err := c.r.Peek(1); err != nil { // it is being answered
			t.Fatal(err)
		}
		callers = append(callers, c)
	}
	if got := (memoryInUse() - before) / clients; got > most {
		t.Errorf("%d bytes for each client", got)
	}
	s.at("", "kv", "get", "none").wants(t, exitNotFound, "")
	for _, c := range callers {
		_ = c.Close()
	}
	s.end()
}

// memoryInUse returns how many bytes are in use after a garbage collection.
func memoryInUse() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // the second frees what pools have kept
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc + m.StackInuse)
}

// Ensure that the datacenter has the name that it is given, and no other.
func TestServe_Datacenter(t *testing.T) {
	t.Parallel()
	s := served(t, "--memory", "--datacenter", "here")
	for dc, want := range map[string]int{"here": 404, "dc1": 500} {
		r := newRequest(t, http.MethodGet, fmt.Sprintf("%s/v1/kv/k?dc=%s", s.url, dc), "")
		if status, body := send(t, http.DefaultClient, r); status != want {
			t.Errorf("%s: got %d, %s", dc, status, body)
		}
	}
	s.end()
}
