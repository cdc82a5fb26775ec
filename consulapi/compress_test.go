package consulapi_test

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/consulapi"
)

// accepting sends a GET with these headers Accept-Encoding.
func (h *harness) accepting(target string, encodings ...string) reply {
	h.t.Helper()
	r := httptest.NewRequestWithContext(h.t.Context(), "GET", target, nil)
	if encodings != nil {
		r.Header["Accept-Encoding"] = encodings
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return reply{w.Code, w.Body.String(), w.Header()}
}

// unzip returns the reply's body without its compression.
func (h *harness) unzip(r reply) string {
	h.t.Helper()
	z, err := gzip.NewReader(strings.NewReader(r.body))
	h.must(err)
	text, err := io.ReadAll(z)
	h.must(err)
	h.must(z.Close())
	return string(text)
}

// Ensure that a body is compressed for a client that asks for it, in whatever words, and only then.
func TestCompress_H20_WhenAskedFor(t *testing.T) {
	run(t, nil, func(h *harness) {
		text := strings.Repeat("text ", 1000)
		h.put("k", text)
		for _, test := range []struct {
			encodings  []string
			compressed bool
		}{
			{nil, false}, {[]string{""}, false}, {[]string{"identity"}, false},
			{[]string{"gzip"}, true}, {[]string{"deflate, gzip"}, true},
			{[]string{"br", "gzip"}, true}, {[]string{" GZIP ;q=0.5 , br"}, true},
			{[]string{"gzip; q=1.000"}, true}, {[]string{"gzip;Q=0.001"}, true},
			{[]string{"gzip;q=0"}, false}, {[]string{"gzip; q=0.000, br"}, false},
			{[]string{"gzip;q=x"}, false}, {[]string{"gzip;q=NaN"}, false},
			{[]string{"gzip;q=-1"}, false}, {[]string{"gzip;x=1"}, false},
			{[]string{"xgzip"}, false}, {[]string{"gzipped"}, false}, {[]string{"*"}, false},
		} {
			r := h.accepting("/v1/kv/k?raw", test.encodings...)
			got := r.body
			if test.compressed {
				got = h.unzip(r)
			}
			if encoding := r.header.Get("Content-Encoding"); r.code != 200 || got != text ||
				(encoding == "gzip") != test.compressed || !test.compressed && encoding != "" {
				t.Errorf("%q: %d, encoding %q, %d bytes", test.encodings, r.code, encoding,
					len(r.body))
			}
		}
	})
}

// Ensure that a short body stays as it is, and a body that would not get shorter.
func TestCompress_H20_WhenItPays(t *testing.T) {
	run(t, nil, func(h *harness) {
		noise := make([]byte, 3000)
		_, err := rand.NewChaCha8([32]byte{}).Read(noise)
		h.must(err)
		for value, compressed := range map[string]bool{
			strings.Repeat("x", 1399): false, strings.Repeat("x", 1400): true,
			string(noise): false,
		} {
			h.put("k", value)
			r := h.accepting("/v1/kv/k?raw", "gzip")
			if got := r.header.Get("Content-Encoding") == "gzip"; got != compressed ||
				!got && r.body != value {
				t.Errorf("%d bytes: compressed: %v", len(value), got)
			}
		}
		for _, target := range []string{"/v1/snapshot", "/v1/lockd/backup"} {
			if got := h.accepting(target, "gzip").header["Content-Encoding"]; got != nil {
				t.Errorf("%s: %q", target, got)
			}
		}
	})
}

// Ensure that a compressed answer has the headers of a plain one, except those that tell them
// apart, and that every answer says that it depends on the request's Accept-Encoding.
func TestCompress_H20_Headers(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.put("k", strings.Repeat("x", 2000))
		plain, small := h.accepting("/v1/kv/?recurse"), h.accepting("/v1/kv/?recurse", "gzip")
		if got := h.unzip(small); got != plain.body {
			t.Errorf("%q is not %q", got, plain.body)
		}
		if got := small.header.Get("Content-Length"); got != strconv.Itoa(len(small.body)) {
			t.Errorf("Content-Length is %s, of %d", got, len(small.body))
		}
		small.header.Del("Content-Encoding")
		small.header.Set("Content-Length", plain.header.Get("Content-Length"))
		if !maps.EqualFunc(plain.header, small.header, slices.Equal) {
			t.Errorf("%v is not %v", small.header, plain.header)
		}
		for _, target := range []string{
			"GET /v1/kv/k", "GET /v1/kv/none", "PUT /v1/kv/k", "POST /v1/kv/k", "GET /none",
			"GET /v1/kv/", "GET /v1/snapshot", "OPTIONS /v1/kv/k", "HEAD /v1/kv/k",
		} {
			if got := h.send(target, "").header["Vary"]; !slices.Equal(got,
				[]string{"Accept-Encoding"}) {
				t.Errorf("%s: Vary is %q", target, got)
			}
		}
	})
}

// Ensure that the answer of a blocked query, and an answer with many errors, are compressed too.
func TestCompress_H20_AnyAnswer(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.put("k", "v")
		waiting := make(chan reply, 1)
		target := fmt.Sprintf("/v1/kv/k?index=%d", h.entry("k").ModifyIndex)
		go func() { waiting <- h.accepting(target, "gzip") }()
		h.waits(waiting)
		h.put("k", strings.Repeat("x", 2000))
		if got, want := h.unzip(h.answered(waiting)), h.accepting("/v1/kv/k").body; got != want {
			t.Errorf("%q is not %q", got, want)
		}

		ops := strings.Repeat(`{"KV":{"Verb":"get","Key":"a-key-that-is-not-there"}},`, 40)
		r := httptest.NewRequestWithContext(h.t.Context(), "PUT", "/v1/txn",
			strings.NewReader("["+ops[:len(ops)-1]+"]"))
		r.Header.Set("Accept-Encoding", "gzip")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		text := h.unzip(reply{w.Code, w.Body.String(), w.Header()})
		if w.Code != 409 || !strings.HasPrefix(text, `{"Results":null,"Errors":[`) {
			t.Errorf("%d %s", w.Code, text)
		}
	})
}

// Ensure that Go's client, which asks for gzip by itself, sees the original, and that nothing is
// compressed for a client on the same machine.
func TestCompress_H20_OfAClient(t *testing.T) {
	db, err := lockd.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	value := bytes.Repeat([]byte("value "), 1000)
	if _, err := db.Put("k", value, nil); err != nil {
		t.Fatal(err)
	}
	handler, err := consulapi.Handler(db, nil)
	if err != nil {
		t.Fatal(err)
	}
	from := "" // the address that the server really sees
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.RemoteAddr = cmp.Or(from, r.RemoteAddr)
		handler.ServeHTTP(w, r)
	}))
	defer s.Close()
	for address, compressed := range map[string]bool{
		"": false, "127.0.0.2:80": false, "[::1]:80": false, "[::ffff:127.0.0.1]:80": false,
		"@": false, "192.0.2.1:80": true, "[2001:db8::1]:80": true, "[fe80::1%eth0]:80": true,
	} {
		from = address
		response, err := s.Client().Get(s.URL + "/v1/kv/k?raw")
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(response.Body)
		if err = errors.Join(err, response.Body.Close()); err != nil {
			t.Fatal(err)
		}
		if response.Uncompressed != compressed || !bytes.Equal(got, value) {
			t.Errorf("from %q: compressed: %v, %d bytes", address, response.Uncompressed, len(got))
		}
	}
}

// Ensure that nothing is compressed where there is no wire.
func TestCompress_H20_NotInProcess(t *testing.T) {
	run(t, nil, func(h *harness) {
		transport, err := consulapi.Transport(h.db, nil)
		h.must(err)
		value := strings.Repeat("x", 2000)
		h.put("k", value)
		r := httptest.NewRequestWithContext(h.t.Context(), "GET", "http://h/v1/kv/k?raw", nil)
		r.Header.Set("Accept-Encoding", "gzip")
		response, err := transport.RoundTrip(r)
		h.must(err)
		got, err := io.ReadAll(response.Body)
		h.must(err)
		if string(got) != value || response.Header["Content-Encoding"] != nil ||
			response.Header["Vary"] != nil {
			t.Errorf("%d bytes, %v", len(got), response.Header)
		}
	})
}
