package hub_test

import (
	"fmt"
	"testing"

	"github.com/lockd/lockd/internal/hub"
)

// BenchmarkPublish publishes events outside the scopes that are watched.
func BenchmarkPublish(b *testing.B) {
	for _, topics := range []int{0, 100_000} {
		b.Run(fmt.Sprintf("topics=%d", topics), func(b *testing.B) {
			h := hub.New[int](10_000, 0)
			elsewhere(h, topics)
			batch := []hub.Event[int]{event(0, "some/key/of/usual/length")}
			b.ReportAllocs()
			for b.Loop() {
				batch[0].Index++
				h.Publish(batch, batch[0].Index)
			}
		})
	}
}

// BenchmarkFollow wakes one watcher by one event.
func BenchmarkFollow(b *testing.B) {
	h := hub.New[int](10_000, 0)
	batch := []hub.Event[int]{event(0, "key")}
	var events []hub.Event[int]
	var cursor hub.Cursor
	b.ReportAllocs()
	for b.Loop() {
		var topic *hub.Topic
		events, cursor, topic, _ = h.Follow(exactly("key"), cursor, events)
		batch[0].Index++
		h.Publish(batch, batch[0].Index)
		<-topic.Changed()
		cursor = cursor.Advance(topic.First() - 1)
	}
}

// BenchmarkRead_NothingInScope reads past a full ring of events elsewhere.
func BenchmarkRead_NothingInScope(b *testing.B) {
	h := hub.New[int](10_000, 0)
	for i := range uint64(10_000) {
		publish(h, event(1+i, "elsewhere"))
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := look(h, exactly("key"), hub.After(0), nil); err != nil {
			b.Fatal(err)
		}
	}
}
