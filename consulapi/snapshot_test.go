package consulapi_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/catalog"
	"github.com/lockd/lockd/consulapi"
)

// archived is a file of an archive.
type archived struct{ name, content string }

// sums are the checksums of the files, as sha256sum writes them.
func sums(files ...archived) archived {
	var lines strings.Builder
	for _, f := range files {
		fmt.Fprintf(&lines, "%x  %s\n", sha256.Sum256([]byte(f.content)), f.name)
	}
	return archived{"SHA256SUMS", lines.String()}
}

// archive makes an archive of the files.
func archive(t testing.TB, files ...archived) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	to := tar.NewWriter(z)
	var err error
	for _, f := range files {
		err = errors.Join(err, to.WriteHeader(&tar.Header{
			Name: f.name, Mode: 0o600, Size: int64(len(f.content)),
		}))
		_, wrong := io.WriteString(to, f.content)
		err = errors.Join(err, wrong)
	}
	if err = errors.Join(err, to.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// ofState makes a whole archive of a state.
func ofState(t testing.TB, state string) string {
	t.Helper()
	meta, content := archived{"meta.json", "{}"}, archived{"state.bin", state}
	return archive(t, meta, content, sums(meta, content))
}

// unzip returns the content of a gzip stream.
func unzip(text string) (string, error) {
	z, err := gzip.NewReader(strings.NewReader(text))
	if err != nil {
		return "", err
	}
	plain, err := io.ReadAll(z)
	return string(plain), err
}

// unpack returns the files of an archive.
func unpack(t testing.TB, text string) (files []archived) {
	t.Helper()
	plain, err := unzip(text)
	if err != nil {
		t.Fatal(err)
	}
	from := tar.NewReader(strings.NewReader(plain))
	for {
		header, err := from.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		content, wrong := io.ReadAll(from)
		if err := errors.Join(err, wrong); err != nil {
			t.Fatal(err)
		}
		files = append(files, archived{header.Name, string(content)})
	}
}

// Ensure that a snapshot is an archive that Consul's commands take: its files in their order, with
// their checksums, and a state in Consul's records.
func TestSnapshot_IsConsulsArchive(t *testing.T) {
	run(t, &consulapi.Options{NodeID: uuidOfWeb1, Datacenter: "x"}, func(h *harness) {
		h.put("k", "v")
		h.want("DELETE /v1/kv/k", "", 200, "true")
		h.want("PUT /v1/kv/k?flags=300", strings.Repeat("v", 40), 200, "true")
		r := h.send("GET /v1/snapshot", "")
		index := h.db.Snapshot().Index()
		if r.code != 200 || r.header.Get("Content-Type") != "application/x-gzip" ||
			r.header.Get("X-Consul-LastContact") != "0" || r.index() != index {
			t.Fatalf("%d %v", r.code, r.header)
		}
		if again := h.send("GET /v1/snapshot", ""); again.body != r.body {
			t.Error("the same state has another archive")
		}
		// It ends as tar wants it, with two blocks of zeros.
		if whole, err := unzip(r.body); err != nil || len(whole)%512 != 0 ||
			!strings.HasSuffix(whole, strings.Repeat("\x00", 1024)) {
			t.Errorf("%d bytes, %v", len(whole), err)
		}
		files := unpack(t, r.body)
		if len(files) != 3 || files[0].name != "meta.json" || files[1].name != "state.bin" ||
			files[2] != sums(files[0], files[1]) {
			t.Fatalf("%q", files)
		}
		state := files[1].content
		want := fmt.Sprintf(`{"Version":1,"ID":"1-%d","Index":%[1]d,"Term":1,"Peers":null,`+
			`"Configuration":{"Servers":null},"ConfigurationIndex":0,"Size":%d}`, index, len(state))
		if files[0].content != want {
			t.Errorf("meta.json: %s, not\n%s", files[0].content, want)
		}
		at := string([]byte{byte(index)})
		if !strings.HasPrefix(state, "\x81\xa9LastIndex"+at+"\x00\x88\xaaDatacenter\xa1x") {
			t.Errorf("state.bin begins with %q", state[:40])
		}
		key := "\x02\x87\xa3Key\xa1k\xa5Value\xda\x00\x28" + strings.Repeat("v", 40) +
			"\xa5Flags\xcf\x00\x00\x00\x00\x00\x00\x01\x2c\xa9LockIndex\x00\xa7Session\xa0" +
			"\xabCreateIndex" + at + "\xabModifyIndex" + at
		if !strings.HasSuffix(state, key) {
			t.Errorf("state.bin ends with %q, not\n%q", state[max(0, len(state)-len(key)):], key)
		}
	})
}

// snapshotOf returns what a snapshot has to keep, without indexes.
func snapshotOf(h *harness) string {
	state := h.db.Snapshot()
	var all []any
	for _, e := range state.Prefix("") {
		all = append(all, e.Key, string(e.Value), e.Flags)
	}
	for n := range state.Catalog().Nodes() {
		n.CreateIndex, n.ModifyIndex = 0, 0
		all = append(all, n)
	}
	for s := range state.Catalog().Services("") {
		s.CreateIndex, s.ModifyIndex = 0, 0
		all = append(all, s)
	}
	for c := range state.Catalog().Checks("") {
		c.CreateIndex, c.ModifyIndex = 0, 0
		all = append(all, c)
	}
	text, err := json.Marshal(all)
	h.must(err)
	return string(text)
}

// Ensure that everything in a snapshot comes back, except sessions, that indexes go on above the
// snapshot's (G4), and that the node of this process exists afterwards whatever the snapshot has.
func TestSnapshot_SaveAndRestore(t *testing.T) {
	var saved, kept string
	var index uint64
	run(t, &consulapi.Options{NodeID: uuidOfWeb1}, func(h *harness) {
		h.put("a", "v")
		h.put("empty", "")
		h.put("long", strings.Repeat("\x00\xff", 40_000))
		h.put("\xff/%25", "v")
		h.want("PUT /v1/kv/flagged?flags=18446744073709551615", "v", 200, "true")
		s := h.create("").ID
		h.want("PUT /v1/kv/l?acquire="+s, "", 200, "true")
		h.want("PUT /v1/agent/service/register", `{"Name":"web","Port":80,"Tags":["t","u"],
			"Meta":{"m":"1"},"TaggedAddresses":{"wan":{"Address":"1.2.3.4","Port":3},"lan":{}},
			"Check":{"TTL":"1h","Status":"passing"}}`, 200, "")
		h.want("PUT /v1/catalog/register", `{"Node":"n",
			"ID":"7e5e0f5a-8f7a-4a31-9d6f-9b3b0c6d8a11","Address":"1.1.1.1",
			"TaggedAddresses":{"lan":"2.2.2.2"},"NodeMeta":{"a":"b"},"Service":{"Service":"s"},
			"Check":{"Name":"c","Notes":"no","Output":"out","ServiceID":"s","Status":"warning",
			"Type":"mine","Timeout":"1s","Definition":{"TCP":"x","Interval":"5s"}}}`, 200, "true")
		for i := range 300 {
			h.put(fmt.Sprintf("many/%d", i), "v")
		}
		saved, kept = h.send("GET /v1/snapshot", "").body, snapshotOf(h)
		index = h.db.Snapshot().Index()
	})
	run(t, &consulapi.Options{NodeID: uuidOfWeb1}, func(h *harness) {
		h.put("b", "v")
		s := h.create("").ID
		r := h.sendAs(h.t.Context(), "PUT /v1/snapshot", chunked(saved))
		if r.code != 200 || r.body != "" {
			t.Fatalf("%d %s", r.code, r.body)
		}
		if got := snapshotOf(h); got != kept {
			t.Errorf("%s, not\n%s", got, kept)
		}
		if e := h.entry("l"); e.Session != "" || e.ModifyIndex <= index {
			t.Errorf("%+v, saved at %d", e, index)
		}
		h.want("PUT /v1/session/renew/"+s, "", 404, "Session id '"+s+"' not found")
		h.create("") // the session is bound to the node and its check
	})
}

// Ensure that a server of Consul, which stops when it restores a service with Meta or a node with
// an ID that its rules forbid, finds none in a snapshot, and that all of it comes back here.
func TestSnapshot_HasNothingThatStopsConsul(t *testing.T) {
	meta := map[string]string{
		"fine_1-A": strings.Repeat("v", 512), strings.Repeat("k", 128): "", "not.fine": "v",
		"": "v", "consul-own": "v", "long": strings.Repeat("v", 513),
		strings.Repeat("k", 129): "v", "\xc3\xa9": "v",
	}
	many := make(map[string]string)
	for i := range 65 {
		many[fmt.Sprintf("m%02d", i)] = "v"
	}
	var saved, kept string
	run(t, nil, func(h *harness) {
		h.must(h.db.Update(func(tx *lockd.Txn) error {
			at := tx.Catalog()
			return errors.Join(
				at.PutNode(catalog.Node{Name: "n", ID: "no UUID"}),
				at.PutService(catalog.Service{Node: "n", Name: "s", Meta: meta}),
				at.PutService(catalog.Service{Node: "n", Name: "t", Meta: many}),
			)
		}))
		saved, kept = h.send("GET /v1/snapshot", "").body, snapshotOf(h)
	})
	state := unpack(t, saved)[1].content
	for _, want := range []string{
		"\xa2ID\xa0\xa4Node\xa1n",
		"\xa4Meta\x82\xa8fine_1-A\xda\x02\x00" + strings.Repeat("v", 512) +
			"\xda\x00\x80" + strings.Repeat("k", 128) + "\xa0\xa4Port",
		"\xa4Meta\xde\x00\x40\xa3m00\xa1v",
		"\xa3m63\xa1v\xa4Port",
	} {
		if !strings.Contains(state, want) {
			t.Errorf("%q has no %q", state, want)
		}
	}
	backup, err := consulapi.ReadSnapshot(strings.NewReader(saved))
	if err != nil {
		t.Fatal(err)
	}
	run(t, nil, func(h *harness) {
		h.must(h.db.Restore(backup))
		if got := snapshotOf(h); got != kept {
			t.Errorf("%s, not\n%s", got, kept)
		}
	})
}

// Ensure that nothing is written for a client that is gone before its snapshot has been counted.
func TestSnapshot_ClientGoesAway(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.put("a", strings.Repeat("v", 100_000)) // more than is counted at a time
		ctx, cancel := context.WithCancel(h.t.Context())
		cancel()
		w := httptest.NewRecorder()
		defer func() {
			if cause := recover(); cause != http.ErrAbortHandler || w.Body.Len() > 0 {
				t.Errorf("%v, after %d bytes", cause, w.Body.Len())
			}
		}()
		h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "/v1/snapshot", nil))
	})
}

// Ensure that a backup that the library writes is taken too, and that the node of this process is
// there afterwards, though the backup lacks it (N14).
func TestSnapshot_RestoresABackup(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.must(h.db.Update(func(tx *lockd.Txn) error {
			_, err := tx.Catalog().DeleteNode("local")
			return err
		}))
		h.put("a", "v")
		var backup bytes.Buffer
		h.must(h.db.Backup(&backup))
		h.put("a", "w")
		h.want("PUT /v1/snapshot", backup.String(), 200, "")
		if e := h.entry("a"); string(e.Value) != "v" {
			t.Errorf("%+v", e)
		}
		if got := h.checkIDs("/v1/health/node/local"); got != "local/serfHealth" {
			t.Errorf("the node has the checks %q", got)
		}
	})
}

// Ensure that a snapshot that is damaged, invalid or too large changes nothing.
func TestSnapshot_Refused(t *testing.T) {
	run(t, &consulapi.Options{MaxSnapshotSize: 1 << 20}, func(h *harness) {
		h.put("a", "v")
		saved := h.send("GET /v1/snapshot", "").body
		h.put("a", "w")
		meta, state := unpack(t, saved)[0], unpack(t, saved)[1]
		other := archived{"state.bin", strings.Replace(state.content, "v", "x", 1)}
		bad := map[string]string{
			"empty": "", "none": "x", "longer": saved + "x", "gzip alone": "\x1f\x8b",
			"nothing in it": archive(t),
			"no state":      archive(t, meta, sums(meta)),
			"no meta":       archive(t, state, sums(state)),
			"no sums":       archive(t, meta, state),
			"another state": archive(t, meta, other, sums(meta, state)),
			"another meta":  archive(t, archived{"meta.json", "{}"}, state, sums(meta, state)),
			"half the sums": archive(t, meta, state, sums(state)),
			"twice":         archive(t, meta, state, state, sums(meta, state)),
			"a file more":   archive(t, meta, archived{"x", ""}, state, sums(meta, state)),
			"record cut":    ofState(t, state.content[:len(state.content)-1]),
			"no header":     ofState(t, ""),
			"a text first":  ofState(t, "\xa0"),
			"a bad byte":    ofState(t, "\x80\x02\xc1"),
			"no key":        ofState(t, "\x80\x02\x80"),
			"no node":       ofState(t, "\x80\x00\x80"),
			"long claimed":  ofState(t, "\x80\x02\x81\xa3Key\xdb\xff\xff\xff\xff"),
			"many claimed":  ofState(t, "\x80\x09\xdf\xff\xff\xff\xff"),
			"foreign check": ofState(t, "\x80\x00\x82\xa4Node\xa1n\xa5Check\x82\xa4Node\xa1m"+
				"\xa4Name\xa1c"),
		}
		whole, err := unzip(saved)
		h.must(err)
		for at := range len(saved) {
			damaged := []byte(saved)
			damaged[at] ^= 0x10
			// Some bits mean nothing to gzip, such as the bits of a time.
			if got, err := unzip(string(damaged)); err != nil || got != whole {
				bad[fmt.Sprintf("damaged at %d", at)] = string(damaged)
			}
			bad[fmt.Sprintf("cut to %d", at)] = saved[:at]
		}
		for name, body := range bad {
			if r := h.send("PUT /v1/snapshot", body); r.code != 400 {
				t.Errorf("%s: %d %s", name, r.code, r.body)
			}
		}
		const tooLarge = "Request body too large, max size: 1048576 bytes."
		h.want("PUT /v1/snapshot", ofState(t, strings.Repeat("\x80", 1<<20)), 413, tooLarge)
		h.put("large", strings.Repeat("x", 500<<10))
		h.put("larger", strings.Repeat("x", 512<<10))
		h.put("largest", strings.Repeat("x", 512<<10))
		h.want("PUT /v1/snapshot", h.send("GET /v1/snapshot", "").body, 413, tooLarge)
		var backup bytes.Buffer
		h.must(h.db.Backup(&backup))
		h.want("PUT /v1/snapshot", backup.String(), 413, tooLarge)
		if e := h.entry("a"); string(e.Value) != "w" {
			t.Errorf("%+v", e)
		}
	})
}

// Ensure that the refusal of a snapshot says what is wrong with it.
func TestSnapshot_RefusalSaysWhatIsWrong(t *testing.T) {
	run(t, nil, func(h *harness) {
		const service = "\x80\x00\x82\xa4Node\xa1n\xa7Service\x82\xa7Service\xa1s"
		for _, test := range []struct{ state, want string }{
			{"\x80\x02\x81\xa3Key", "state.bin is cut off"},
			{"\x80\x02\x81\xa3Key\x90", "state.bin: a text where 0x90 is"},
			{"\x80\x02\x81\xa5Flags\xa1x", "state.bin: a number where 0xa1 is"},
			{"\x80\x02\x05", "state.bin: an object where 0x5 is"},
			{"\x80\x09\xc1", "state.bin: a value where 0xc1 is"},
			{service + "\xa4Tags\xa1x", "state.bin: a list where 0xa1 is"},
			{service + "\xa4Meta\x82\xa1a\x05\xa1b", "state.bin: a text where 0x5 is"},
		} {
			r := h.send("PUT /v1/snapshot", ofState(t, test.state))
			if r.code != 400 || !strings.HasSuffix(r.body, test.want) {
				t.Errorf("%q: %d %s, not %s", test.state, r.code, r.body, test.want)
			}
		}
		meta, state := archived{"meta.json", "{}"}, archived{"state.bin", "\x80"}
		for body, want := range map[string]string{
			archive(t, meta, state, state, sums(meta, state)): "it has state.bin twice",
			archive(t, meta, archived{"x", ""}):               `it has a file "x"`,
			archive(t, meta, sums(meta)):                      "it lacks meta.json or state.bin",
			archive(t, state, sums(state)):                    "it lacks meta.json or state.bin",
			archive(t, meta, state, sums(meta)):               "checksum of state.bin does not fit",
		} {
			r := h.send("PUT /v1/snapshot", body)
			if r.code != 400 || !strings.HasSuffix(r.body, want) {
				t.Errorf("%d %s, not %s", r.code, r.body, want)
			}
		}
	})
}

// Ensure that a snapshot of Consul is read, in whatever form of MessagePack it is written, and that
// rows that lockd has no place for are left out.
func TestReadSnapshot_OfConsul(t *testing.T) {
	state := "\x81\xa9LastIndex\xcd\x27\x10" + // 10,000
		"\x03\x82\xa2ID\xa1s\xa9LockDelay\xd3\x00\x00\x00\x03\x7e\x11\xd6\x00" + // a session
		"\x06\x91\x82\xa4Node\xa1n\xa5Coord\x82\xa3Vec\x92\xcb\xc1\xc1\xc1\xc1\xc1\xc1\xc1\xc1" +
		"\xca\xc1\xc1\xc1\xc1\xa1E\xc0" +
		"\x1d\xc7\x02\x01\xc1\xc1" + // 0xc1 is no value
		"\x02\x81\xa3Key\xa1l" + "\x10\xd4\x01\xc1" + "\x02\x81\xa3Key\xa1m" +
		"\x14\xd5\x01\xc1\xc1" + "\x02\x81\xa3Key\xa1n" +
		"\x11\xc3" + "\x12\xff" + "\x15\xe0" + "\x13\xd0\x80" +
		"\x00\x87\xa4Node\xa4away\xa7Address\xa1a\xa8PeerName\xa1p\xa7Service\xc0\xa5Check\xc0" +
		"\xa8NodeMeta\xc0\xaeSkipNodeUpdate\xc2" +
		"\x00\x85\xa4Node\xa1n\xa7Address\xa71.1.1.1\xa8NodeMeta\xde\x00\x01\xa1a\xa1b" +
		"\xa5Check\xc0\xa7Service\xdf\x00\x00\x00\x04\xa2ID\xa1s\xa7Service\xa3web" +
		"\xa4Port\xd1\x1f\x90\xa4Tags\xdc\x00\x02\xd9\x01t\xc4\x01u" +
		"\x00\x85\xa4Node\xa1n\xa7Address\xa71.1.1.1\xa8NodeMeta\x81\xa1a\xa1b" +
		"\xa7Service\xc0\xa5Check\x86\xa4Node\xa1n\xa7CheckID\xa1c\xa4Type\xa3tcp" +
		"\xa6Status\xa7passing\xa9ServiceID\xa1s" +
		"\xaaDefinition\x81\xa8Interval\xd2\x00\x00\x00\x05" +
		"\x02\x84\xa3Key\xa1k\xa5Value\xc5\x00\x01v\xa5Flags\xcc\xff\xa7Session\xa1s" +
		"\x05\x81\xa3Key\xa4gone"
	backup, err := consulapi.ReadSnapshot(strings.NewReader(ofState(t, state)))
	if err != nil {
		t.Fatal(err)
	}
	run(t, nil, func(h *harness) {
		h.must(h.db.Restore(backup))
		shown := h.db.Snapshot()
		if e := h.entry("k"); string(e.Value) != "v" || e.Flags != 255 || e.ModifyIndex <= 10_000 {
			t.Errorf("%+v", e)
		}
		n, _ := shown.Catalog().Node("n")
		s, _ := shown.Catalog().Service("n", "s")
		c, _ := shown.Catalog().Check("n", "c")
		if shown.Len() != 4 || n.Meta["a"] != "b" || s.Name != "web" || s.Port != 8080 ||
			fmt.Sprint(s.Tags) != "[t u]" || c.Status != catalog.Passing || c.ServiceID != "s" {
			t.Errorf("%d keys, %+v, %+v, %+v", shown.Len(), n, s, c)
		}
		if r := h.send("GET /v1/health/node/n", ""); !strings.Contains(r.body, `"Type":"tcp"`) {
			t.Error(r.body)
		}
		if _, exists := shown.Catalog().Node("away"); exists {
			t.Error("a node of another cluster is here")
		}
	})
}

// Ensure that nil is nothing for a member of any kind, and that the longest of each short form of
// MessagePack is read.
func TestReadSnapshot_NilAndFullForms(t *testing.T) {
	const letters = "abcdefghijklmno" // 15, the most that a short list or object has
	long := strings.Repeat("k", 31)
	state := "\x81\xa9LastIndex\x01" +
		"\x1d\xc9\x00\x00\x00\x01\x07\xc1" + "\x1d\xd8" + strings.Repeat("\xc1", 17) +
		"\x02\x83\xa3Key\xbf" + long + "\xa5Value\xc0\xa5Flags\xc0" +
		"\x02\x8f\xa3Key\xa1b\xa5Value\xc6\x00\x00\x00\x01v"
	tags := ""
	for i, letter := range letters {
		tags += "\xa1" + string(letter)
		if i >= 2 { // two members are there
			state += "\xa1" + string(letter) + "\xc0"
		}
	}
	state += "\x00\x83\xa4Node\xa1n\xa7Address\xc0\xa7Service\x82\xa7Service\xa1s\xa4Tags\x9f" +
		tags + "\x00\x82\xa4Node\xa1n\xa7Service\x83\xa7Service\xa1t\xa4Tags\xc0\xa4Port\xc0"
	backup, err := consulapi.ReadSnapshot(strings.NewReader(ofState(t, state)))
	if err != nil {
		t.Fatal(err)
	}
	run(t, nil, func(h *harness) {
		h.must(h.db.Restore(backup))
		h.shows(long, "", "", 0, 0)
		h.shows("b", "v", "", 0, 0)
		for id, want := range map[string]string{"s": letters, "t": ""} {
			s, exists := h.db.Snapshot().Catalog().Service("n", id)
			if !exists || strings.Join(s.Tags, "") != want || s.Port != 0 {
				t.Errorf("%s: %+v", id, s)
			}
		}
	})
}

// Ensure that errors of the reader are returned as they are, and that a check of the library keeps
// its TTL.
func TestReadSnapshot(t *testing.T) {
	errBroken := errors.New("the cable is cut")
	var saved string
	run(t, nil, func(h *harness) {
		h.must(h.db.Update(func(tx *lockd.Txn) error {
			return tx.Catalog().PutCheck(catalog.Check{
				Node: "local", Name: "c", TTL: time.Minute, Meta: map[string]string{"own": "1"},
			})
		}))
		saved = h.send("GET /v1/snapshot", "").body
	})
	for _, part := range []int{0, 1, 2, 20, len(saved) / 2} {
		_, err := consulapi.ReadSnapshot(
			io.MultiReader(strings.NewReader(saved[:part]), iotest.ErrReader(errBroken)))
		if !errors.Is(err, errBroken) || errors.Is(err, lockd.ErrCorrupt) {
			t.Errorf("after %d bytes: %v", part, err)
		}
	}
	if _, err := consulapi.ReadSnapshot(strings.NewReader(saved[:20])); !errors.Is(err,
		lockd.ErrCorrupt) {
		t.Errorf("cut off: %v", err)
	}
	backup, err := consulapi.ReadSnapshot(strings.NewReader(saved))
	if err != nil {
		t.Fatal(err)
	}
	run(t, nil, func(h *harness) {
		h.must(h.db.Restore(backup))
		c, _ := h.db.Snapshot().Catalog().Check("local", "c")
		if c.TTL != time.Minute || c.Meta["own"] != "1" || len(c.Meta) != 1 {
			t.Errorf("%+v", c)
		}
	})
}

// Ensure that no state makes ReadSnapshot panic, and that any state it accepts can be restored.
func FuzzReadSnapshot(f *testing.F) {
	f.Add("\x81\xa9LastIndex\x05\x02\x81\xa3Key\xa1k")
	f.Add("\x80\x00\x82\xa4Node\xa1n\xa7Service\x81\xa7Service\xa1s")
	f.Add("\x80\x09\x92\xdc\x00\x01\xc7\x01xy\xca1234")
	f.Fuzz(func(t *testing.T, state string) {
		backup, err := consulapi.ReadSnapshot(strings.NewReader(ofState(t, state)))
		if err != nil {
			if !errors.Is(err, lockd.ErrCorrupt) && !errors.Is(err, lockd.ErrInvalid) {
				t.Fatal(err)
			}
			return
		}
		db, err := lockd.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(db.Restore(backup), db.Close()); err != nil {
			t.Fatal(err)
		}
	})
}
