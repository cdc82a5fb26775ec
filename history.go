package lockd

import (
	"slices"

	"github.com/lockd/lockd/internal/engine"
)

// History returns the kept events (Options.History) that changed the key's lock, the oldest first;
// none is from before the database was opened. It reads all kept events.
func (db *DB) History(key string) []Event {
	var found []Event
	for event := range db.hub.Backward() {
		if event.Space == engine.SpaceKeys && event.Name == key &&
			event.Body.Lock != engine.Unchanged {
			found = append(found, db.eventOf(&event))
		}
	}
	slices.Reverse(found)
	return found
}
