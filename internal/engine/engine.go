package engine

import (
	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/store"
)

// New returns an engine on the store. Load loads its rows.
func New(rows *store.Store, config Config) *Engine {
	if config.NewSession == nil {
		config.NewSession = func() *Session { return &Session{sessionRest: new(sessionRest)} }
	}
	e := &Engine{
		rows: rows, config: config,
		sessions:   make(map[schema.ID]*Session),
		bound:      make(map[string]map[*Session]struct{}),
		locks:      make(map[string]*lockState),
		semaphores: make(map[string]*semaphore),
		leases:     make(map[string]*checkLease),
		open:       new(Batch),
	}
	if config.Slow != 0 {
		e.slow = &slow{
			holds: make(map[Sequencer]*slowHold), waits: make(map[*Waiter]*slowWait),
		}
	}
	e.own.engine = e
	return e
}

// Durable reports whether there is a file, so that a sealed transaction joins a batch.
func (e *Engine) Durable() bool { return e.rows.Durable() }

// Sessions returns the live sessions that chosen accepts, the oldest first.
func (e *Engine) Sessions(chosen func(*Session) bool) []*Session {
	var sessions []*Session
	for _, s := range e.sessions {
		if s.live && chosen(s) {
			sessions = append(sessions, s)
		}
	}
	SortByAge(sessions)
	return sessions
}

// Rows returns the store, for a caller that only reads rows.
func (e *Engine) Rows() *store.Store { return e.rows }

// Counts returns the counts.
func (e *Engine) Counts() Counts { return e.counts }

// MaxFloor is the largest index that a user may name as the bound that the next indexes exceed.
const MaxFloor = 1 << 62

// Raise makes the next indexes larger than index. No transaction may be running.
func (e *Engine) Raise(index uint64) error {
	// A backup's index may be above MaxFloor, since its database may have begun there. Both bounds
	// leave more indexes above them, until they overflow, than can ever be used.
	const most = MaxFloor + MaxFloor/2
	if index > most && index > e.rows.Index() {
		return invalid("index %d is more than %d, and the next indexes would be above it", index,
			uint64(most))
	}
	e.rows.Raise(index)
	return nil
}
