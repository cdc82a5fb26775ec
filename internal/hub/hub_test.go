package hub_test

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"weak"

	"go.uber.org/goleak"

	"github.com/lockd/lockd/internal/hub"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The spaces of these tests.
const (
	keys     byte = 1
	sessions byte = 2
)

func exactly(name string) hub.Scope {
	return hub.Scope{Space: keys, Match: hub.Exact, Name: name}
}

func prefix(name string) hub.Scope {
	return hub.Scope{Space: keys, Match: hub.Prefix, Name: name}
}

func event(index uint64, name string) hub.Event[int] {
	return hub.Event[int]{Index: index, Space: keys, Name: name}
}

// publish publishes each event by itself.
func publish(h *hub.Hub[int], events ...hub.Event[int]) {
	for _, e := range events {
		h.Publish([]hub.Event[int]{e}, e.Index)
	}
}

// look returns what a watcher reads at once, as Follow does, without a wait for more.
func look(
	h *hub.Hub[int], scope hub.Scope, from hub.Cursor, into []hub.Event[int],
) ([]hub.Event[int], hub.Cursor, error) {
	events, upto, topic, err := h.Follow(scope, from, into)
	h.Unsubscribe(topic)
	return events, upto, err
}

// fired reports whether the topic has fired.
func fired(t *hub.Topic) bool {
	select {
	case <-t.Changed():
		return true
	default:
		return false
	}
}

// mustPanic fails unless f panics with the message.
func mustPanic(t *testing.T, message string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if got := recover(); got != message {
			t.Fatalf("panic: got %v, want %q", got, message)
		}
	}()
	f()
}

func TestNew_PanicsWithoutHistory(t *testing.T) {
	for _, history := range []int{-1, 0} {
		mustPanic(t, "hub: history below 1", func() { hub.New[int](history, 0) })
	}
}

func TestPublish_PanicsOutOfOrderAndPublishesNothing(t *testing.T) {
	for _, test := range []struct {
		name    string
		message string
		events  []hub.Event[int]
		index   uint64
	}{
		{"IndexMovesBack", "hub: index moves back", nil, 4},
		{"EventAlreadyPassed", "hub: event out of order",
			[]hub.Event[int]{event(5, "a")}, 6},
		{"EventAboveIndex", "hub: event out of order",
			[]hub.Event[int]{event(6, "a"), event(8, "a")}, 7},
		{"EventsFall", "hub: event out of order",
			[]hub.Event[int]{event(7, "a"), event(6, "a")}, 7},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := hub.New[int](10, 5)
			topic := h.Subscribe(exactly("a"))
			mustPanic(t, test.message, func() { h.Publish(test.events, test.index) })

			events, cursor, err := look(h, prefix(""), hub.After(5), nil)
			if len(events) != 0 || cursor.Index() != 5 || err != nil || fired(topic) {
				t.Fatalf("something was published: %v, %d, %v", events, cursor.Index(), err)
			}
		})
	}
}

func TestSubscribe_OneTopicPerScopeUntilItFires(t *testing.T) {
	h := hub.New[int](10, 0)
	first, second := h.Subscribe(exactly("a")), h.Subscribe(exactly("a"))
	if first != second || h.Topics() != 1 {
		t.Fatalf("not shared: %d topics", h.Topics())
	}
	if h.Subscribe(prefix("a")) == first {
		t.Fatal("an exact scope and a prefix share a topic")
	}
	publish(h, event(1, "a"))
	if !fired(first) || h.Topics() != 0 {
		t.Fatalf("fired %t, %d topics, want true, 0", fired(first), h.Topics())
	}
	third := h.Subscribe(exactly("a"))
	if third == first || fired(third) {
		t.Fatal("a topic is used again after it fired")
	}
}

func TestSubscribe_FiresForThoseConcernedOnly(t *testing.T) {
	for _, test := range []struct {
		scope hub.Scope
		want  bool
	}{
		{exactly("a/b"), true},
		{exactly("a"), false},
		{exactly("a/b/c"), false},
		{exactly(""), false},
		{prefix(""), true},
		{prefix("a"), true},
		{prefix("a/"), true},
		{prefix("a/b"), true},
		{prefix("a/b/"), false},
		{prefix("a/b/c/d/e"), false},
		{prefix("b"), false},
		{hub.Scope{Space: sessions, Match: hub.Exact, Name: "a/b"}, false},
		{hub.Scope{Space: sessions, Match: hub.Prefix, Name: ""}, false},
		{hub.Scope{Space: sessions | keys, Match: hub.Exact, Name: "a/b"}, true},
		{hub.Scope{Space: sessions | keys, Match: hub.Prefix, Name: "a"}, true},
		{hub.Scope{Match: hub.Prefix}, false},
	} {
		h := hub.New[int](10, 0)
		topic := h.Subscribe(test.scope)
		publish(h, event(7, "a/b"))
		if fired(topic) != test.want {
			t.Errorf("%+v: fired %t, want %t", test.scope, fired(topic), test.want)
		}
		if first := topic.First(); test.want && first != 7 || !test.want && first != 0 {
			t.Errorf("%+v: first %d", test.scope, first)
		}
	}
}

// All at once, so that what one topic leaves behind is seen by the others.
func TestSubscribe_PrefixesOfManyLengths(t *testing.T) {
	h := hub.New[int](10, 0)
	var concerned, others []*hub.Topic
	for _, name := range []string{"", "a", "ab", "abcd", "abcdef"} {
		concerned = append(concerned, h.Subscribe(prefix(name)))
	}
	for _, name := range []string{"b", "ac", "abd", "abcde", "abcdefg"} {
		others = append(others, h.Subscribe(prefix(name)))
	}
	h.Unsubscribe(others[3]) // the only one of its length
	others = slices.Delete(others, 3, 4)
	publish(h, event(1, "abcdef"))
	for i, topic := range concerned {
		if !fired(topic) {
			t.Errorf("concerned topic %d has not fired", i)
		}
	}
	for i, topic := range others {
		if fired(topic) {
			t.Errorf("other topic %d has fired", i)
		}
	}
	if h.Topics() != len(others) {
		t.Errorf("topics: got %d, want %d", h.Topics(), len(others))
	}
	publish(h, event(2, "abcdefg"), event(3, "abd"), event(4, "ac"), event(5, "b"))
	if h.Topics() != 0 {
		t.Errorf("topics: got %d, want 0", h.Topics())
	}
}

// Ensure that among very many topics exactly those of an event are found, also after other topics
// have come and gone.
func TestSubscribe_ManyTopics(t *testing.T) {
	const n = 2_000
	h := hub.New[int](10, 0)
	name := func(i int) string { return fmt.Sprintf("name-%06d", i) }
	var keys, prefixes, others []*hub.Topic
	for i := range n {
		keys = append(keys, h.Subscribe(exactly(name(i))))
		prefixes = append(prefixes, h.Subscribe(prefix(name(i))))
		others = append(others, h.Subscribe(exactly("other-"+name(i))))
	}
	for _, topic := range others {
		h.Unsubscribe(topic)
	}
	for i := range n {
		publish(h, event(uint64(2*i+1), "other-"+name(i)), event(uint64(2*i+2), name(i)))
		if !fired(keys[i]) || !fired(prefixes[i]) {
			t.Fatalf("%s was not told", name(i))
		}
		if i+1 < n && (fired(keys[i+1]) || fired(prefixes[i+1])) {
			t.Fatalf("%s was told of %s", name(i+1), name(i))
		}
	}
	if got := h.Topics(); got != 0 {
		t.Errorf("%d topics are left", got)
	}
}

func TestFirst_IsTheFirstEventInScope(t *testing.T) {
	h := hub.New[int](10, 0)
	topic := h.Subscribe(exactly("a"))
	h.Publish([]hub.Event[int]{event(1, "b"), event(2, "a"), event(3, "a")}, 4)
	<-topic.Changed()
	if topic.First() != 2 {
		t.Fatalf("first: got %d, want 2", topic.First())
	}
}

func TestUnsubscribe_LastOneRemovesTheTopic(t *testing.T) {
	for _, scope := range []hub.Scope{exactly("a"), prefix("a")} {
		h := hub.New[int](10, 0)
		topic := h.Subscribe(scope)
		h.Subscribe(scope)
		h.Unsubscribe(topic)
		if h.Topics() != 1 {
			t.Fatalf("topics: got %d, want 1", h.Topics())
		}
		h.Unsubscribe(topic)
		if h.Topics() != 0 {
			t.Fatalf("topics: got %d, want 0", h.Topics())
		}
		publish(h, event(1, "a"))
		if fired(topic) {
			t.Fatal("a topic fired that nobody watches")
		}
	}
}

func TestUnsubscribe_OfFiredTopicLeavesItsSuccessor(t *testing.T) {
	h := hub.New[int](10, 0)
	spent := h.Subscribe(exactly("a"))
	publish(h, event(1, "a"))
	h.Unsubscribe(spent)
	h.Subscribe(exactly("a"))
	h.Unsubscribe(spent)
	h.Unsubscribe(nil)
	if h.Topics() != 1 {
		t.Fatalf("topics: got %d, want 1", h.Topics())
	}
}

func TestClose_FiresAllTopics(t *testing.T) {
	h := hub.New[int](10, 0)
	publish(h, event(1, "a"))
	topics := []*hub.Topic{
		h.Subscribe(exactly("a")), h.Subscribe(prefix("")), h.Subscribe(prefix("abc")),
	}
	h.Close()
	h.Close()
	topics = append(topics, h.Subscribe(exactly("a")))
	events, _, topic, err := h.Follow(exactly("a"), hub.After(0), nil)
	if len(events) != 1 || err != nil {
		t.Fatalf("follow after Close: got %v, %v, want one event", events, err)
	}
	topics = append(topics, topic)
	for i, topic := range topics {
		<-topic.Changed()
		if topic.First() != 0 {
			t.Errorf("topic %d: first %d, want 0", i, topic.First())
		}
		h.Unsubscribe(topic)
	}
	if h.Topics() != 0 {
		t.Errorf("topics: got %d, want 0", h.Topics())
	}
	publish(h, event(2, "a"))
}

// indexes returns the indexes of the events.
func indexes(events []hub.Event[int]) []uint64 {
	var all []uint64
	for _, e := range events {
		all = append(all, e.Index)
	}
	return all
}

func TestRead_ReturnsWhatIsInScopeInOrder(t *testing.T) {
	h := hub.New[int](10, 0)
	publish(h, event(1, "a"), event(2, "b"), event(3, "ab"), event(5, "a"))
	h.Publish(nil, 9)
	for _, test := range []struct {
		scope hub.Scope
		after uint64
		want  []uint64
	}{
		{exactly("a"), 0, []uint64{1, 5}},
		{prefix("a"), 0, []uint64{1, 3, 5}},
		{prefix("a"), 1, []uint64{3, 5}},
		{prefix(""), 3, []uint64{5}},
		{prefix(""), 4, []uint64{5}},
		{prefix(""), 5, nil},
		{exactly("c"), 0, nil},
		{hub.Scope{Space: sessions, Match: hub.Prefix}, 0, nil},
	} {
		events, cursor, err := look(h, test.scope, hub.After(test.after), nil)
		if err != nil || !slices.Equal(indexes(events), test.want) || cursor.Index() != 9 {
			t.Errorf("%+v after %d: got %v upto %d, %v, want %v upto 9",
				test.scope, test.after, indexes(events), cursor.Index(), err, test.want)
		}
	}
}

func TestRead_BeyondWhatIsPublishedStaysThere(t *testing.T) {
	h := hub.New[int](10, 0)
	publish(h, event(1, "a"))
	_, cursor, err := look(h, exactly("a"), hub.After(5), nil)
	if cursor.Index() != 5 || err != nil {
		t.Fatalf("upto %d, %v, want 5", cursor.Index(), err)
	}
	publish(h, event(5, "a"), event(6, "a"))
	events, _, err := look(h, exactly("a"), cursor, nil)
	if !slices.Equal(indexes(events), []uint64{6}) || err != nil {
		t.Fatalf("got %v, %v, want 6", indexes(events), err)
	}
}

func TestRead_UsesTheSliceGiven(t *testing.T) {
	h := hub.New[int](10, 0)
	publish(h, event(1, "a"))
	into := make([]hub.Event[int], 3, 10)
	events, _, _ := look(h, exactly("a"), hub.After(0), into)
	if len(events) != 1 || &events[0] != &into[0] {
		t.Fatalf("got %v in another slice", events)
	}
}

func TestRead_FindsTheOneEventAmongMany(t *testing.T) {
	const n = 5_000
	h := hub.New[int](n, 0)
	for i := uint64(1); i < n; i++ {
		publish(h, event(i, "b"))
	}
	publish(h, event(n, "a"))
	events, _, err := look(h, exactly("a"), hub.After(0), nil)
	if !slices.Equal(indexes(events), []uint64{n}) || err != nil {
		t.Fatalf("got %v, %v, want %d", indexes(events), err, n)
	}
}

func TestRead_StopsBetweenIndexesIfItCan(t *testing.T) {
	const n = 1_000
	h := hub.New[int](n, 0)
	for i := range uint64(n) {
		publish(h, event(1+i, "a"))
	}
	events, cursor, err := look(h, exactly("a"), hub.After(0), nil)
	if err != nil || len(events) == n || cursor.Index() != uint64(len(events)) {
		t.Fatalf("got %d events upto %d, %v", len(events), cursor.Index(), err)
	}
}

func TestRead_MayStopWithinOneIndex(t *testing.T) {
	const n = 1_000
	h := hub.New[int](n+1, 0)
	transaction := make([]hub.Event[int], n)
	for i := range transaction {
		transaction[i] = event(2, "a")
		transaction[i].Body = i
	}
	publish(h, event(1, "a"))
	h.Publish(transaction, 2)

	events, cursor, err := look(h, exactly("a"), hub.After(1), nil)
	if err != nil || len(events) >= n || cursor.Index() != 1 {
		t.Fatalf("got %d events upto %d, %v, want some upto 1",
			len(events), cursor.Index(), err)
	}
	for i := range uint64(n) { // one more, and the rest of the index would be dropped
		publish(h, event(3+i, "b"))
	}
	for read := 0; ; {
		for _, e := range events {
			if e.Body != read {
				t.Fatalf("got event %d, want %d", e.Body, read)
			}
			read++
		}
		if read == n {
			break
		}
		if events, cursor, err = look(h, exactly("a"), cursor, events); err != nil {
			t.Fatalf("read after %d events: %v", read, err)
		}
	}
	if cursor.Index() < 2 {
		t.Fatalf("upto %d, want 2 at least", cursor.Index())
	}
}

func TestRead_CompactedWithinOneIndex(t *testing.T) {
	h := hub.New[int](300, 0)
	transaction := make([]hub.Event[int], 300)
	for i := range transaction {
		transaction[i] = event(1, "a")
	}
	h.Publish(transaction, 1)
	events, cursor, err := look(h, exactly("a"), hub.After(0), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(events) == len(transaction) {
		t.Fatal("all was read at once")
	}
	for i := range uint64(299) {
		publish(h, event(2+i, "b"))
	}
	if _, _, err := look(h, exactly("a"), cursor, nil); err != nil {
		t.Fatalf("nothing is lost: got %v", err)
	}
	publish(h, event(1_000, "b"))
	if _, _, err := look(h, exactly("a"), cursor, nil); !errors.Is(err, hub.ErrCompacted) {
		t.Fatalf("got %v, want ErrCompacted", err)
	}
}

func TestRead_CompactedExactlyWhenAnEventMayBeMissing(t *testing.T) {
	const history, floor = 4, 10
	h := hub.New[int](history, floor)
	known := uint64(floor) // the lowest index after which all events are kept
	for index := uint64(floor + 1); index < floor+20; index++ {
		publish(h, event(index, "a"))
		if index > floor+history {
			known++
		}
		for after := uint64(0); after <= index; after++ {
			events, _, err := look(h, exactly("a"), hub.After(after), nil)
			switch {
			case after < known:
				if !errors.Is(err, hub.ErrCompacted) || len(events) != 0 {
					t.Fatalf("after %d at %d: got %v, %v, want ErrCompacted",
						after, index, indexes(events), err)
				}
			case err != nil || len(events) != int(index-after):
				t.Fatalf("after %d at %d: got %v, %v", after, index, indexes(events), err)
			}
		}
	}
}

func TestRead_IndexThatLostOneEventIsCompacted(t *testing.T) {
	h := hub.New[int](3, 0)
	h.Publish([]hub.Event[int]{event(1, "a"), event(1, "a"), event(1, "a")}, 1)
	publish(h, event(2, "b"), event(3, "b"))
	if _, _, err := look(h, exactly("a"), hub.After(0), nil); err != nil {
		t.Fatalf("complete: got %v", err)
	}
	publish(h, event(4, "b"))
	if _, _, err := look(h, exactly("a"), hub.After(0), nil); !errors.Is(err, hub.ErrCompacted) {
		t.Fatalf("incomplete: got %v, want ErrCompacted", err)
	}
	if _, _, err := look(h, exactly("a"), hub.After(1), nil); err != nil {
		t.Fatalf("after it: got %v", err)
	}
}

// Ensure that a watcher that has seen everything before a publication can read all of it, however
// many events it has, until as many newer events have come as the history has room for.
func TestPublish_IsWholeForWhoIsUpToDate(t *testing.T) {
	const history = 4
	for _, size := range []int{1, history, history + 1, 1_000} {
		for _, sleeps := range []bool{true, false} {
			h := hub.New[int](history, 0)
			publish(h, event(1, "a"), event(2, "elsewhere"))
			_, cursor, topic, err := h.Follow(prefix("a"), hub.After(0), nil)
			if err != nil || topic == nil {
				t.Fatal(err)
			}
			index := h.Index()
			batch := make([]hub.Event[int], size) // of a few transactions
			for i := range batch {
				batch[i] = event(index+1+uint64(i/7), "a")
			}
			h.Publish(batch, batch[size-1].Index)
			for range history - 1 {
				publish(h, event(h.Index()+1, "elsewhere"))
			}
			if sleeps {
				cursor = cursor.Advance(topic.First() - 1)
			}
			for read := 0; read < size; {
				var events []hub.Event[int]
				if events, cursor, err = look(h, prefix("a"), cursor, nil); err != nil {
					t.Fatalf("%d events, of which %d are read: %v", size, read, err)
				}
				read += len(events)
			}

			publish(h, event(h.Index()+1, "elsewhere"))
			if _, _, err := look(h, prefix("a"), hub.After(index), nil); err == nil {
				t.Errorf("%d events are kept for longer", size)
			}
		}
	}
}

// Ensure that dropped events keep nothing in memory, and that a ring that had to be large once
// shrinks again.
func TestPublish_FreesWhatItDrops(t *testing.T) {
	h := hub.New[*[64]byte](4, 0)
	batch := make([]hub.Event[*[64]byte], 1_000)
	bodies := make([]weak.Pointer[[64]byte], len(batch))
	for i := range batch {
		body := new([64]byte)
		bodies[i] = weak.Make(body)
		batch[i] = hub.Event[*[64]byte]{Index: 1, Space: keys, Body: body}
	}
	h.Publish(batch, 1)
	clear(batch)
	for i := range uint64(4) {
		h.Publish([]hub.Event[*[64]byte]{{Index: 2 + i, Space: keys}}, 2+i)
	}
	runtime.GC()
	for i := range bodies {
		if bodies[i].Value() != nil {
			t.Fatalf("the body of event %d is kept", i)
		}
	}
	runtime.KeepAlive(h)
}

// Ensure that an event that is dropped for its size keeps nothing in memory from then on.
func TestPublish_FreesALargeEventAtOnce(t *testing.T) {
	h := hub.New[*[64]byte](4, 0)
	body := new([64]byte)
	large := weak.Make(body)
	h.Publish([]hub.Event[*[64]byte]{{Index: 1, Space: keys, Size: hub.MaxBytes, Body: body}}, 1)
	h.Publish([]hub.Event[*[64]byte]{{Index: 2, Space: keys, Size: 1}}, 2)
	runtime.GC()
	if large.Value() != nil {
		t.Error("the body is kept")
	}
	runtime.KeepAlive(h)
}

// Ensure that large events push others out of the history, and that the events of the last
// publication are kept whatever their sizes.
func TestRead_CompactedByBytes(t *testing.T) {
	h := hub.New[int](10, 0)
	large := func(index uint64, size uint32) {
		e := event(index, "a")
		e.Size = size
		publish(h, e)
	}
	for _, test := range []struct {
		size uint32
		lost uint64 // the newest index that is lost
	}{
		{hub.MaxBytes / 2, 0}, {hub.MaxBytes / 2, 0}, {1, 1}, {0, 1}, {3 * hub.MaxBytes, 4}, {0, 5},
		{hub.MaxBytes, 5}, {1, 7},
	} {
		index := h.Index() + 1
		large(index, test.size)
		events, _, err := look(h, exactly("a"), hub.After(test.lost), nil)
		if err != nil || len(events) != int(index-test.lost) {
			t.Errorf("at %d: got %v, %v, want all after %d", index, indexes(events), err, test.lost)
		}
		if test.lost == 0 {
			continue
		}
		if _, _, err := look(h, exactly("a"), hub.After(test.lost-1), nil); err == nil {
			t.Errorf("at %d: %d is kept", index, test.lost)
		}
	}

	at := h.Index() + 1
	e := event(at, "a")
	e.Size = hub.MaxBytes
	h.Publish([]hub.Event[int]{e, e, e}, at)
	events, _, err := look(h, exactly("a"), hub.After(at-1), nil)
	if err != nil || len(events) != 3 {
		t.Errorf("of one index: got %v, %v", indexes(events), err)
	}

	e.Index++
	next := e
	next.Index++
	h.Publish([]hub.Event[int]{e, next}, next.Index)
	events, _, err = look(h, exactly("a"), hub.After(at), nil)
	if err != nil || len(events) != 2 {
		t.Errorf("of one publication: got %v, %v", indexes(events), err)
	}
	large(next.Index+1, 1)
	if _, _, err := look(h, exactly("a"), hub.After(at), nil); err == nil {
		t.Error("the publication is kept for longer")
	}
}

// Ensure that a publication that is dropped for its bytes takes no smaller one after it along.
func TestRead_CompactedByBytesOneByOne(t *testing.T) {
	h := hub.New[int](10, 0)
	e := event(1, "a")
	h.Publish([]hub.Event[int]{e, e, e}, 1)
	for e.Index = 2; e.Index <= 5; e.Index++ { // the last pushes out index 1, then 2
		e.Size = hub.MaxBytes / 3
		publish(h, e)
	}
	events, _, err := look(h, exactly("a"), hub.After(2), nil)
	if err != nil || !slices.Equal(indexes(events), []uint64{3, 4, 5}) {
		t.Errorf("got %v, %v, want 3, 4, 5", indexes(events), err)
	}
	if _, _, err := look(h, exactly("a"), hub.After(1), nil); !errors.Is(err, hub.ErrCompacted) {
		t.Errorf("after 1: got %v, want ErrCompacted", err)
	}
}

func TestAdvance_NeverMovesBack(t *testing.T) {
	for _, test := range []struct{ from, to, want uint64 }{{5, 4, 5}, {5, 5, 5}, {5, 6, 6}} {
		if got := hub.After(test.from).Advance(test.to).Index(); got != test.want {
			t.Errorf("%d to %d: got %d, want %d", test.from, test.to, got, test.want)
		}
	}
}

// Ensure that a cursor within an index stays there if it is advanced to what it has passed.
func TestAdvance_KeepsThePlaceWithinOneIndex(t *testing.T) {
	const n = 1_000
	h := hub.New[int](n, 0)
	h.Publish(slices.Repeat([]hub.Event[int]{event(1, "a")}, n), 1)
	var cursor hub.Cursor
	for read := 0; read < n; {
		events, upto, err := look(h, exactly("a"), cursor, nil)
		if read += len(events); err != nil || read > n {
			t.Fatalf("%d events were read, of %d: %v", read, n, err)
		}
		cursor = upto.Advance(upto.Index())
	}
}

func TestFollow_SubscribesAtTheEndOnly(t *testing.T) {
	const n = 1_000
	h := hub.New[int](n, 0)
	for i := range uint64(n) {
		publish(h, event(1+i, "a"))
	}
	var cursor hub.Cursor
	var read int
	for {
		events, upto, topic, err := h.Follow(exactly("a"), cursor, nil)
		if err != nil {
			t.Fatal(err)
		}
		read += len(events)
		cursor = upto
		if (topic != nil) != (read == n) {
			t.Fatalf("after %d events: topic %v", read, topic)
		}
		if topic != nil {
			break
		}
	}
	if h.Topics() != 1 || cursor.Index() != n {
		t.Fatalf("%d topics, upto %d, want 1, %d", h.Topics(), cursor.Index(), n)
	}
}

func TestFollow_CompactedSubscribesNothing(t *testing.T) {
	h := hub.New[int](1, 5)
	_, _, topic, err := h.Follow(exactly("a"), hub.After(4), nil)
	if !errors.Is(err, hub.ErrCompacted) || topic != nil || h.Topics() != 0 {
		t.Fatalf("got %v, %v, want ErrCompacted and no topic", topic, err)
	}
}

func TestFollow_SleeperIsNotCompactedByEventsElsewhere(t *testing.T) {
	const history = 4
	h := hub.New[int](history, 0)
	publish(h, event(1, "a"))
	events, cursor, topic, err := h.Follow(exactly("a"), hub.After(0), nil)
	if len(events) != 1 || topic == nil || err != nil {
		t.Fatalf("got %v, %v, %v", events, topic, err)
	}
	// It may deliver these events as slowly as it likes.
	for i := range uint64(10 * history) {
		publish(h, event(2+i, "b"))
	}
	if fired(topic) {
		t.Fatal("woken by events elsewhere")
	}
	publish(h, event(100, "a"))
	if _, _, err := look(h, exactly("a"), cursor, nil); !errors.Is(err, hub.ErrCompacted) {
		t.Fatalf("the ring should have moved past the cursor: got %v", err)
	}
	<-topic.Changed()
	events, _, err = look(h, exactly("a"), cursor.Advance(topic.First()-1), nil)
	if !slices.Equal(indexes(events), []uint64{100}) || err != nil {
		t.Fatalf("got %v, %v, want 100", indexes(events), err)
	}
}

// Ensure that every event in scope that is kept is returned, the oldest first, also when there are
// more than are read at a time.
func TestKept_OldestFirst(t *testing.T) {
	for _, kept := range []int{1, 255, 256, 257, 1000} {
		for _, published := range []int{0, 1, 256, 600, 3000} {
			h := hub.New[int](kept, 0)
			var want, wantA []uint64
			for i := range published {
				name := []string{"a", "b", "ab"}[i%3]
				publish(h, event(uint64(i)+1, name))
				if i < published-kept {
					continue
				}
				want = append(want, uint64(i)+1)
				if name == "a" {
					wantA = append(wantA, uint64(i)+1)
				}
			}
			if got := indexes(h.Kept(prefix(""))); !slices.Equal(got, want) {
				t.Errorf("%d kept, %d published: got %d events %v", kept, published, len(got), got)
			}
			if got := indexes(h.Kept(exactly("a"))); !slices.Equal(got, wantA) {
				t.Errorf("%d kept, %d published: got %v of a", kept, published, got)
			}
		}
	}
}

// Ensure that no event is missing between those that are returned, whatever is published and
// dropped meanwhile.
func TestKept_WhileEventsGo(t *testing.T) {
	const n = 20_000
	h := hub.New[int](1_000, 0)
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range uint64(n) {
			publish(h, event(1+i, "k"))
		}
	})
	defer wg.Wait()
	for h.Index() < n {
		before := h.Index()
		got := indexes(h.Kept(exactly("k")))
		for i := range got {
			if got[i] != got[0]+uint64(i) {
				t.Fatalf("event %d: got %d, want %d", i, got[i], got[0]+uint64(i))
			}
		}
		if before > 0 && (len(got) == 0 || got[len(got)-1] < before) {
			t.Fatalf("got %d events, want all up to %d at least", len(got), before)
		}
	}
}

// Ensure that each subscription counts until it fires or is given back.
func TestWatchers_CountsSubscriptions(t *testing.T) {
	h := hub.New[int](10, 0)
	mustCount := func(want int) {
		t.Helper()
		if got := h.Watchers(); got != want {
			t.Fatalf("watchers: got %d, want %d", got, want)
		}
	}
	mustCount(0)
	k := h.Subscribe(exactly("k"))
	h.Subscribe(exactly("k"))
	h.Subscribe(prefix(""))
	h.Subscribe(prefix("other"))
	mustCount(4)
	h.Unsubscribe(k)
	mustCount(3)
	publish(h, event(1, "k"))
	mustCount(1)
	h.Unsubscribe(k) // has fired
	mustCount(1)
	h.Close()
	mustCount(0)
	h.Subscribe(exactly("k"))
	mustCount(0)
}
