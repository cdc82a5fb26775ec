package lockd_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/catalog"
)

// Ensure that an event, printed, says what has changed: the key, the session, or the part of the
// catalog.
func TestEvent_SaysWhatHasChanged(t *testing.T) {
	each(t, func(h *harness) {
		before := h.Snapshot().Index()
		long := strings.Repeat("k", 200)
		h.put("a", "v", 0)
		h.put(long, "v", 0)
		s := h.session(&lockd.SessionOptions{Name: "web", TTL: 10 * time.Second})
		fence := h.lock(s, "a").Sequencer().Fence
		h.must(s.Close())
		h.must(second(h.Delete("a")))
		own := h.session(&lockd.SessionOptions{Name: "web", Behavior: lockd.DeleteKeys})
		ownFence := h.lock(own, "own").Sequencer().Fence
		h.must(own.Close())
		h.must(h.Update(func(tx *lockd.Txn) error {
			c := tx.Catalog()
			return errors.Join(c.PutNode(catalog.Node{Name: "web-1"}),
				c.PutService(catalog.Service{Node: "web-1", ID: "redis", Name: "redis"}))
		}))

		for scope, want := range map[lockd.Scope][]string{
			lockd.PrefixScope(""): {
				`key put "a"`, `key put "` + long[:100] + `"`,
				fmt.Sprintf(`"a" granted to "web" (session ID) with fence %d`, fence),
				`"a" released by "web" (session ID): closed by its owner`, `key deleted "a"`,
				fmt.Sprintf(`"own" granted to "web" (session ID) with fence %d`, ownFence),
				`"own" deleted by "web" (session ID): closed by its owner`,
			},
			lockd.SessionsScope(): {
				`session created "web" (ID)`, `session ended "web" (ID): closed by its owner`,
			},
			lockd.CatalogScope(): {`node put "web-1"`, `service put "web-1" "redis"`},
		} {
			for event, err := range h.Watch(t.Context(), scope, before) {
				h.must(err)
				text := strings.NewReplacer(s.ID().String(), "ID", own.ID().String(), "ID").Replace(
					event.String())
				at, got, _ := strings.Cut(text, ": ")
				if got != want[0] {
					t.Errorf("got %q, want %q", got, want[0])
				}
				if strings.HasPrefix(at, "index ") != event.Time.IsZero() {
					t.Errorf("%q begins with %q, and the time is %v", got, at, event.Time)
				}
				if want = want[1:]; len(want) == 0 {
					break
				}
			}
		}
	})
}
