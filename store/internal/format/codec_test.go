package format_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/store/internal/format"
)

var (
	someID = schema.ID{0xde, 0xad, 15: 0xef}
	allIDs = schema.ID(bytes.Repeat([]byte{0xff}, 16))
)

const (
	odd     = "\x00\xff ä/" // not UTF-8
	longest = time.Duration(math.MaxInt64)
	least   = time.Duration(math.MinInt64)
)

// keyed is a row and its key in its table.
type keyed[T any] struct {
	key string
	row T
}

func TestRow_ComesBackAsItWas(t *testing.T) {
	long := strings.Repeat("x", schema.KeyLimit)
	t.Run("Key", func(t *testing.T) {
		testRoundTrip(t, &format.KeyRows, []keyed[schema.Key]{
			{"", schema.Key{}},
			{"a/b", schema.Key{Key: "a/b", Value: []byte("v"), Flags: 1, Session: someID,
				CreateIndex: 2, ModifyIndex: 3, LockIndex: 4, Fence: 5}},
			{odd, schema.Key{Key: odd, Value: []byte(odd), Flags: math.MaxUint64, Session: allIDs,
				CreateIndex: math.MaxUint64, ModifyIndex: math.MaxUint64,
				LockIndex: math.MaxUint64, Fence: math.MaxUint64}},
			{long, schema.Key{Key: long, Value: bytes.Repeat([]byte{7}, 1<<20)}},
		})
	})
	t.Run("Session", func(t *testing.T) {
		testRoundTrip(t, &format.SessionRows, []keyed[schema.Session]{
			{string(make([]byte, 16)), schema.Session{}},
			{string(someID[:]), schema.Session{ID: someID, Name: "s", Node: "n",
				TTL: time.Second, Grace: time.Minute, LockDelay: 15 * time.Second,
				Behavior: 1, Lifetime: 2, Checks: []string{"b", "a", "", "b"}, CreateIndex: 9}},
			{string(allIDs[:]), schema.Session{ID: allIDs, Name: odd, Node: odd,
				TTL: longest, Grace: least, LockDelay: -1, Behavior: math.MaxUint8,
				Lifetime: math.MaxUint8, Checks: []string{""}, CreateIndex: math.MaxUint64,
				Meta: map[string]string{"b": "2", "": odd}}},
		})
	})
	t.Run("Node", func(t *testing.T) {
		testRoundTrip(t, &format.NodeRows, []keyed[schema.Node]{
			{"n", schema.Node{}},
			{"n", schema.Node{Name: "N", ID: "id", Address: "::1",
				Meta:        map[string]string{"b": "2", "a": "1", "": "", odd: odd},
				CreateIndex: math.MaxUint64, ModifyIndex: 1}},
		})
	})
	t.Run("Service", func(t *testing.T) {
		testRoundTrip(t, &format.ServiceRows, []keyed[schema.Service]{
			{"n/s", schema.Service{}},
			{"n/s", schema.Service{Node: "n", ID: "s", Name: "web", Address: odd,
				Port: math.MaxInt, Tags: []string{"z", "a"}, Meta: map[string]string{"k": "v"},
				CreateIndex: 1, ModifyIndex: math.MaxUint64}},
			{"n/s", schema.Service{Port: math.MinInt}},
		})
	})
	t.Run("Check", func(t *testing.T) {
		testRoundTrip(t, &format.CheckRows, []keyed[schema.Check]{
			{"n/c", schema.Check{}},
			{"n/c", schema.Check{Node: "n", ID: "c", Name: "alive", Notes: odd, Output: long,
				ServiceID: "s", Status: math.MaxUint8, CreateIndex: 1, ModifyIndex: 2}},
			{"n/c", schema.Check{TTL: longest}},
			{"n/c", schema.Check{TTL: least, Meta: map[string]string{"": odd}}},
			{"n/c", schema.Check{Meta: map[string]string{"b": "2", "a": "1"}}},
		})
	})
	t.Run("Attachment", func(t *testing.T) {
		testRoundTrip(t, &format.AttachmentRows, []keyed[schema.Attachment]{
			{"", schema.Attachment{}},
			{odd, schema.Attachment{Name: odd, Session: someID, Value: []byte{0},
				CreateIndex: 1, ModifyIndex: math.MaxUint64}},
		})
	})
	t.Run("Delay", func(t *testing.T) {
		testRoundTrip(t, &format.DelayRows, []keyed[schema.Delay]{
			{"k", schema.Delay{Key: "k", Until: time.Unix(0, 0).UTC()}},
			{"k", schema.Delay{Key: "k", Until: time.Unix(0, 1).UTC(), Length: longest}},
			{"k", schema.Delay{Key: "k", Until: time.Unix(0, -1).UTC(), Length: least}},
			{odd, schema.Delay{Key: odd, Until: time.Unix(0, math.MaxInt64).UTC(), Index: 1}},
			{odd, schema.Delay{Key: odd, Until: time.Unix(0, 0).UTC(), Mode: 1}},
			{odd, schema.Delay{Key: odd, Until: time.Unix(0, math.MinInt64).UTC()}},
			{odd, schema.Delay{Key: odd, Until: time.Date(9999, 1, 2, 3, 4, 5, 6, time.UTC)}},
			{odd, schema.Delay{Key: odd, Until: time.Date(-9999, 1, 2, 3, 4, 5, 6, time.UTC)}},
		})
	})
	t.Run("Grave", func(t *testing.T) {
		testRoundTrip(t, &format.GraveRows, []keyed[schema.Grave]{
			{"\x00", schema.Grave{}},
			{"\xff" + odd, schema.Grave{Kind: 0xff, Name: odd, Index: math.MaxUint64}},
		})
	})
	t.Run("Share", func(t *testing.T) {
		none := schema.ShareKey("", 0, schema.ID{})
		share := schema.Share{Row: schema.ShareKey(odd, math.MaxUint64, someID), LockIndex: 1}
		testRoundTrip(t, &format.ShareRows, []keyed[schema.Share]{
			{none, schema.Share{Row: none}},
			{share.Row, share},
		})
		for _, key := range []string{"", "k", schema.ShareKey("k", 1, someID) + "x"} {
			if _, err := format.ShareRows.DecodePayload(key, []byte{1}); err == nil {
				t.Errorf("key %q: got no error", key)
			}
		}
	})
	t.Run("Mark", func(t *testing.T) {
		testRoundTrip(t, &format.MarkRows, []keyed[schema.Mark]{
			{"", schema.Mark{}},
			{"floor", schema.Mark{Name: "floor", Index: math.MaxUint64}},
		})
	})
}

func testRoundTrip[T any](t *testing.T, rows *format.Rows[T], list []keyed[T]) {
	t.Helper()
	for _, want := range list {
		prefix := []byte("before")
		value := rows.Append(prefix, want.key, &want.row)
		if !bytes.HasPrefix(value, prefix) {
			t.Fatalf("Append overwrote what it was to append to: %q", value)
		}
		value = value[len(prefix):]
		got, err := rows.Decode(want.key, value)
		if err != nil {
			t.Fatalf("decode %+v: %v", want.row, err)
		}
		if !reflect.DeepEqual(got, want.row) {
			t.Errorf("got  %+v\nwant %+v", got, want.row)
		}
	}
}

// Ensure that an empty value has one form after it was in a file: nil.
func TestRow_EmptyIsNil(t *testing.T) {
	key, err := format.KeyRows.Decode("k",
		format.KeyRows.Append(nil, "k", &schema.Key{Key: "k", Value: []byte{}}))
	if err != nil || key.Value != nil {
		t.Errorf("an empty value came back as %#v, %v", key.Value, err)
	}
	service, err := format.ServiceRows.Decode("k", format.ServiceRows.Append(nil, "k",
		&schema.Service{Tags: []string{}, Meta: map[string]string{}}))
	if err != nil || service.Tags != nil || service.Meta != nil {
		t.Errorf("an empty slice and map came back as %#v, %#v, %v",
			service.Tags, service.Meta, err)
	}
}

// Ensure that a delay's end is an instant: neither its zone nor its monotonic reading is stored.
func TestRow_DelayIsAnInstant(t *testing.T) {
	until := time.Date(2030, 1, 2, 3, 4, 5, 6, time.FixedZone("", 3600))
	got, err := format.DelayRows.Decode("k",
		format.DelayRows.Append(nil, "k", &schema.Delay{Key: "k", Until: until}))
	if err != nil {
		t.Fatal(err)
	}
	if !got.Until.Equal(until) || got.Until.Location() != time.UTC {
		t.Errorf("got %v, want %v in UTC", got.Until, until)
	}
}

// Ensure that the bytes of a row stay the same as in the files that users have.
func TestRow_BytesArePinned(t *testing.T) {
	session := string(someID[:])
	for _, test := range []struct {
		name string
		got  []byte
		want string
	}{
		{"Key", format.KeyRows.Append(nil, "k", &schema.Key{Key: "k", Value: []byte("v"),
			Flags:   300,
			Session: someID, CreateIndex: 2, ModifyIndex: 3, LockIndex: 1, Fence: 3}),
			"0176ac0201dead00000000000000000000000000ef0203010312730499"},
		{"Session", format.SessionRows.Append(nil, session, &schema.Session{ID: someID, Name: "s",
			Node: "n", TTL: 1, Grace: -1, LockDelay: 2, Behavior: 1, Lifetime: 2,
			Checks: []string{"b", "a"}, CreateIndex: 7}),
			"0173016e020104010202016201610795a2b4aa"},
		{"SessionWithMeta", format.SessionRows.Append(nil, session, &schema.Session{ID: someID,
			CreateIndex: 7, Meta: map[string]string{"a": "1"}}),
			"0000000000000000070101610131e12947a1"},
		{"Node", format.NodeRows.Append(nil, "n", &schema.Node{Name: "N", ID: "i", Address: "a",
			Meta: map[string]string{"b": "2", "a": "1"}, CreateIndex: 1, ModifyIndex: 2}),
			"014e0169016102016101310162013201020fafd760"},
		{"Service", format.ServiceRows.Append(nil, "s", &schema.Service{Node: "n", ID: "i",
			Name: "s", Address: "a", Port: 80, Tags: []string{"t"},
			Meta: map[string]string{"k": "v"}, CreateIndex: 1, ModifyIndex: 2}),
			"016e016901730161a00101017401016b017601028fdc8d8c"},
		{"Check", format.CheckRows.Append(nil, "c", &schema.Check{Node: "n", ID: "i", Name: "c",
			Notes: "o", Output: "p", ServiceID: "s", Status: 3, CreateIndex: 1,
			ModifyIndex: 2}),
			"016e01690163016f01700173030102568f2218"},
		{"CheckWithMore", format.CheckRows.Append(nil, "c", &schema.Check{ID: "i",
			CreateIndex: 1, ModifyIndex: 2, TTL: 3, Meta: map[string]string{"a": "1"}}),
			"000169000000000001020601016101316544e439"},
		{"Attachment", format.AttachmentRows.Append(nil, "a", &schema.Attachment{Name: "a",
			Session: someID, Value: []byte("v"), CreateIndex: 1, ModifyIndex: 2}),
			"01dead00000000000000000000000000ef01760102223b7fe9"},
		{"Delay", format.DelayRows.Append(nil, "k", &schema.Delay{Key: "k",
			Until: time.Unix(1, 5), Length: 15 * time.Second}),
			"020580d88ee16f00e38db143"},
		{"Grave", format.GraveRows.Append(nil, "\x01k", &schema.Grave{Kind: 1, Name: "k",
			Index: 128}),
			"800103795a94"},
		{"Mark", format.MarkRows.Append(nil, "m", &schema.Mark{Name: "m", Index: 127}),
			"7f8de89099"},
	} {
		if got := hex.EncodeToString(test.got); got != test.want {
			t.Errorf("%s is\n%s, want\n%s", test.name, got, test.want)
		}
	}
}

// sample is a row with something in every part.
var sample = keyed[schema.Service]{"n/s", schema.Service{
	Node: "n", ID: "s", Name: "web", Port: -1, Tags: []string{"t", ""},
	Meta: map[string]string{"a": "1", "b": ""}, CreateIndex: 300, ModifyIndex: 1 << 40,
}}

func TestRow_EveryFlippedBitIsFound(t *testing.T) {
	value := format.ServiceRows.Append(nil, sample.key, &sample.row)
	for bit := range 8 * len(value) {
		damaged := bytes.Clone(value)
		damaged[bit/8] ^= 1 << (bit % 8)
		_, err := format.ServiceRows.Decode(sample.key, damaged)
		if !errors.Is(err, format.ErrCorrupt) {
			t.Errorf("bit %d flipped: got %v, want ErrCorrupt", bit, err)
		}
	}
}

func TestRow_EveryOtherLengthIsRefused(t *testing.T) {
	value := format.ServiceRows.Append(nil, sample.key, &sample.row)
	for length := range value {
		_, err := format.ServiceRows.Decode(sample.key, value[:length])
		if !errors.Is(err, format.ErrCorrupt) {
			t.Errorf("cut to %d bytes: got %v, want ErrCorrupt", length, err)
		}
	}
	if _, err := format.ServiceRows.Decode(sample.key, append(value, 0)); err == nil {
		t.Error("a row with one byte more was accepted")
	}
}

func TestRow_BelongsToItsPlace(t *testing.T) {
	value := format.MarkRows.Append(nil, "mark", &schema.Mark{Name: "mark", Index: 7})
	for _, key := range []string{"", "mar", "marks", "nark", "\x00mark", "kram"} {
		_, err := format.MarkRows.Decode(key, value)
		if !errors.Is(err, format.ErrCorrupt) {
			t.Errorf("moved to key %q: got %v, want ErrCorrupt", key, err)
		}
	}
	for table := range format.MarkRows.Table {
		rows := format.MarkRows
		rows.Table = table
		_, err := rows.Decode("mark", value)
		if !errors.Is(err, format.ErrCorrupt) {
			t.Errorf("moved to table %d: got %v, want ErrCorrupt", table, err)
		}
	}
}

func TestRow_ErrorNamesTableAndKey(t *testing.T) {
	_, err := format.NodeRows.Decode("some-node", nil)
	want := `file is damaged: row "some-node" of nodes: it ends too early`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// Ensure that a payload is accepted in one form only, even where its checksum fits.
func TestRow_OneFormOnly(t *testing.T) {
	session := string(someID[:])
	for _, test := range []struct {
		name    string
		decode  func(payload string) error
		payload string
		want    string
	}{
		{"OK", seals(&format.MarkRows, "m"), "\x80\x01", ""},
		{"Nothing", seals(&format.MarkRows, "m"), "", "ends too early"},
		{"Trailing", seals(&format.MarkRows, "m"), "\x01\x00", "after its end"},
		{"NumberCut", seals(&format.MarkRows, "m"), "\x80", "ends too early"},
		{"NumberPadded", seals(&format.MarkRows, "m"), "\x81\x00", "longer than it need be"},
		{"NumberTooLarge", seals(&format.MarkRows, "m"), strings.Repeat("\xff", 9) + "\x02",
			"too large"},
		{"StringCut", seals(&format.NodeRows, "n"), "\x05abc", "ends too early"},
		{"StringHuge", seals(&format.NodeRows, "n"), strings.Repeat("\xff", 9) + "\x01",
			"ends too early"},
		{"MapOK", seals(&format.NodeRows, "n"), "\x00\x00\x00\x02\x01a\x00\x01b\x00\x01\x01", ""},
		{"MapUnsorted", seals(&format.NodeRows, "n"),
			"\x00\x00\x00\x02\x01b\x00\x01a\x00\x01\x01", "out of order"},
		{"MapTwice", seals(&format.NodeRows, "n"),
			"\x00\x00\x00\x02\x01a\x00\x01a\x00\x01\x01", "out of order"},
		{"MapTwiceEmpty", seals(&format.NodeRows, "n"),
			"\x00\x00\x00\x02\x00\x00\x00\x00\x01\x01", "out of order"},
		{"MapHuge", seals(&format.NodeRows, "n"), "\x00\x00\x00\xff\xff\xff\xff\x0f",
			"ends too early"},
		{"ListHuge", seals(&format.ServiceRows, "s"), "\x00\x00\x00\x00\x00\xff\xff\xff\xff\x0f",
			"ends too early"},
		{"IDUnknown", seals(&format.AttachmentRows, "a"), "\x02\x00\x01\x01", "session ID"},
		{"IDZero", seals(&format.AttachmentRows, "a"),
			"\x01" + strings.Repeat("\x00", 16) + "\x00\x01\x01", "session ID"},
		{"IDCut", seals(&format.AttachmentRows, "a"), "\x01\x01\x01", "ends too early"},
		{"SessionKey", seals(&format.SessionRows, session[1:]),
			strings.Repeat("\x00", 9), "key has the wrong length"},
		{"TimeOK", seals(&format.DelayRows, "d"), "\x00\xff\x93\xeb\xdc\x03\x00\x00", ""},
		{"TimePart", seals(&format.DelayRows, "d"), "\x00\x80\x94\xeb\xdc\x03\x00", "too large"},
		{"GraveKey", seals(&format.GraveRows, ""), "\x01", "key has the wrong length"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := test.decode(test.payload)
			switch {
			case test.want == "" && err != nil:
				t.Errorf("got %v, want no error", err)
			case test.want == "":
			case !errors.Is(err, format.ErrCorrupt), !strings.Contains(err.Error(), test.want):
				t.Errorf("got %v, want an ErrCorrupt with %q", err, test.want)
			}
		})
	}
}

// Ensure that the payload of every table ends where its row does: with a byte more or less it is no
// row, though the checksum fits. Nor is one that claims more elements than there is room for.
func TestRow_EndsWithItsPayload(t *testing.T) {
	id := string(someID[:])
	endsWithItsPayload(t, &format.KeyRows, "k", schema.Key{Key: "k", Fence: 1})
	endsWithItsPayload(t, &format.SessionRows, id, schema.Session{CreateIndex: 1})
	endsWithItsPayload(t, &format.NodeRows, "n", schema.Node{Name: "n", ModifyIndex: 1})
	endsWithItsPayload(t, &format.ServiceRows, "n/s", schema.Service{Node: "n", ModifyIndex: 1})
	endsWithItsPayload(t, &format.CheckRows, "n/c", schema.Check{Node: "n", ModifyIndex: 1})
	endsWithItsPayload(t, &format.AttachmentRows, "a", schema.Attachment{ModifyIndex: 1})
	endsWithItsPayload(t, &format.DelayRows, "d", schema.Delay{Index: 1})
	endsWithItsPayload(t, &format.GraveRows, "\x00g", schema.Grave{Index: 1})
	endsWithItsPayload(t, &format.MarkRows, "m", schema.Mark{Index: 1})
	share := schema.Share{LockIndex: 1}
	endsWithItsPayload(t, &format.ShareRows, schema.ShareKey("k", 7, someID), share)

	payload := format.KeyRows.AppendPayload(nil, &schema.Key{Session: someID})
	for _, wrong := range [][]byte{payload[:len(payload)-1], append(payload, 0)} {
		if _, err := format.LockedKey("k", wrong); err == nil {
			t.Errorf("a locked key with the payload %x is accepted", wrong)
		}
	}
	fiveTags := seals(&format.ServiceRows, "n/s")("\x00\x00\x00\x00\x00\x05\x00\x01\x01")
	if !errors.Is(fiveTags, format.ErrShort) {
		t.Errorf("of a service with 5 tags in 3 bytes: got %v, want %v", fiveTags, format.ErrShort)
	}
}

func endsWithItsPayload[T any](t *testing.T, rows *format.Rows[T], key string, row T) {
	t.Helper()
	decode, payload := seals(rows, key), string(rows.AppendPayload(nil, &row))
	if err := decode(payload); err != nil {
		t.Errorf("table %d: got %v", rows.Table, err)
	}
	for _, wrong := range []string{payload[:len(payload)-1], payload + "\x00"} {
		if err := decode(wrong); !errors.Is(err, format.ErrCorrupt) {
			t.Errorf("table %d, payload %x: got %v, want ErrCorrupt", rows.Table, wrong, err)
		}
	}
}

// sealed returns the payload with the checksum that makes it the value of the key.
func sealed(table byte, key string, payload []byte) []byte {
	return binary.BigEndian.AppendUint32(slices.Clone(payload),
		format.Checksum(table, []byte(key), payload))
}

// seals returns a function that decodes a payload under a checksum that fits.
func seals[T any](rows *format.Rows[T], key string) func(payload string) error {
	return func(payload string) error {
		_, err := rows.Decode(key, sealed(rows.Table, key, []byte(payload)))
		return err
	}
}

func TestRow_SharesNoMemoryWithItsBytes(t *testing.T) {
	value := format.ServiceRows.Append(nil, sample.key, &sample.row)
	row, err := format.ServiceRows.Decode(sample.key, value)
	if err != nil {
		t.Fatal(err)
	}
	keyValue := format.KeyRows.Append(nil, "k", &schema.Key{Key: "k", Value: []byte("value")})
	key, err := format.KeyRows.Decode("k", keyValue)
	if err != nil {
		t.Fatal(err)
	}
	clear(value)
	clear(keyValue)
	if !reflect.DeepEqual(row, sample.row) {
		t.Errorf("the row changed with the bytes that it was read from: %+v", row)
	}
	if string(key.Value) != "value" {
		t.Errorf("the value changed with the bytes that it was read from: %q", key.Value)
	}
}

func FuzzRow(f *testing.F) {
	f.Add(format.ServiceRows.Table, sample.key,
		format.ServiceRows.Append(nil, sample.key, &sample.row))
	f.Add(format.SessionRows.Table, string(someID[:]),
		format.SessionRows.Append(nil, string(someID[:]), &schema.Session{Checks: []string{"c"}}))
	f.Add(format.SessionRows.Table, string(someID[:]), format.SessionRows.Append(nil,
		string(someID[:]), &schema.Session{Meta: map[string]string{"a": "b"}}))
	f.Add(format.CheckRows.Table, "n/c", format.CheckRows.Append(nil, "n/c",
		&schema.Check{TTL: 1, Meta: map[string]string{"a": "b"}}))
	f.Fuzz(func(t *testing.T, table byte, key string, payload []byte) {
		switch table {
		case format.KeyRows.Table:
			fuzzRow(t, &format.KeyRows, key, payload)
		case format.SessionRows.Table:
			fuzzRow(t, &format.SessionRows, key, payload)
		case format.NodeRows.Table:
			fuzzRow(t, &format.NodeRows, key, payload)
		case format.ServiceRows.Table:
			fuzzRow(t, &format.ServiceRows, key, payload)
		case format.CheckRows.Table:
			fuzzRow(t, &format.CheckRows, key, payload)
		case format.AttachmentRows.Table:
			fuzzRow(t, &format.AttachmentRows, key, payload)
		case format.DelayRows.Table:
			fuzzRow(t, &format.DelayRows, key, payload)
		case format.GraveRows.Table:
			fuzzRow(t, &format.GraveRows, key, payload)
		case format.MarkRows.Table:
			fuzzRow(t, &format.MarkRows, key, payload)
		}
	})
}

// fuzzRow checks that whatever decodes is what its row encodes to: the bytes as they are, and
// under a checksum that fits.
func fuzzRow[T any](t *testing.T, rows *format.Rows[T], key string, payload []byte) {
	for _, value := range [][]byte{payload, sealed(rows.Table, key, payload)} {
		row, err := rows.Decode(key, value)
		if err != nil {
			if !errors.Is(err, format.ErrCorrupt) {
				t.Errorf("got %v, want an ErrCorrupt", err)
			}
			continue
		}
		if again := rows.Append(nil, key, &row); !bytes.Equal(again, value) {
			t.Errorf("%x decodes to %+v, which encodes to %x", value, row, again)
		}
	}
}

func BenchmarkRow(b *testing.B) {
	for _, size := range []int{16, 1024} {
		row := schema.Key{Key: "service/web/leader", Value: make([]byte, size), Session: someID,
			CreateIndex: 1 << 20, ModifyIndex: 1 << 20, LockIndex: 3, Fence: 1 << 20}
		value := format.KeyRows.Append(nil, row.Key, &row)
		b.Run(fmt.Sprintf("Append/%d", size), func(b *testing.B) {
			b.ReportAllocs()
			var buf []byte
			for b.Loop() {
				buf = format.KeyRows.Append(buf[:0], row.Key, &row)
			}
		})
		b.Run(fmt.Sprintf("Decode/%d", size), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := format.KeyRows.Decode(row.Key, value); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
