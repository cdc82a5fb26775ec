package lockd

import (
	"encoding"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"github.com/lockd/lockd/internal/engine"
	"github.com/lockd/lockd/internal/schema"
)

// Sequencer is the proof of a lock: it names one grant, and never another (G8). It is comparable,
// and has a text form. It is no credential: every caller can read one in an Entry, or make one up.
// The zero value proves nothing, and is refused wherever a sequencer is checked.
type Sequencer struct {
	Key       string
	Session   SessionID
	LockIndex uint64 // how often the free lock was granted since the key was created
	Fence     uint64 // the index of the grant
	Mode      LockMode
}

var (
	_ encoding.TextMarshaler   = Sequencer{}
	_ encoding.TextUnmarshaler = (*Sequencer)(nil)
)

// String returns the text form, fence:lockindex:mode:session:key, with the key percent-encoded
// except its slashes. For the zero value it is empty.
func (q Sequencer) String() string {
	if q == (Sequencer{}) {
		return ""
	}
	key := strings.ReplaceAll(url.PathEscape(q.Key), "%2F", "/")
	return fmt.Sprintf("%d:%d:%s:%s:%s", q.Fence, q.LockIndex, q.Mode, q.Session, key)
}

// ParseSequencer reads the text form. Any other text is ErrInvalid, also the empty text.
func ParseSequencer(text string) (Sequencer, error) {
	q, err := parseSequencer(text)
	return q, wrap("parse sequencer", text, err)
}

func parseSequencer(text string) (Sequencer, error) {
	if text == "" {
		return Sequencer{}, invalid("the text is empty, so nothing is proved; " +
			"want fence:lockindex:mode:session:key")
	}
	parts := strings.SplitN(text, ":", 5)
	if len(parts) != 5 {
		return Sequencer{}, invalid("want fence:lockindex:mode:session:key")
	}
	var q Sequencer
	var err error
	if q.Fence, err = strconv.ParseUint(parts[0], 10, 64); err != nil {
		return Sequencer{}, invalid("fence: %.100v", err)
	}
	if q.LockIndex, err = strconv.ParseUint(parts[1], 10, 64); err != nil {
		return Sequencer{}, invalid("lock index: %.100v", err)
	}
	switch parts[2] {
	case Exclusive.String():
	case Shared.String():
		q.Mode = Shared
	default:
		return Sequencer{}, invalid("mode %.100q is neither %s nor %s", parts[2], Exclusive, Shared)
	}
	// The sequencer of a free lock has no session, and proves nothing.
	if parts[3] != "" {
		var ok bool
		if q.Session, ok = parseSessionID(parts[3]); !ok {
			return Sequencer{}, invalid("session %.100q is not a UUID", parts[3])
		}
	}
	if q.Key, err = url.PathUnescape(parts[4]); err != nil {
		return Sequencer{}, invalid("key: %v", err)
	}
	// One value has one text, so that texts can be compared too.
	if q.String() != text {
		return Sequencer{}, invalid("not in the form of String, which is %.100q", q.String())
	}
	return q, nil
}

// MarshalText returns the text form.
func (q Sequencer) MarshalText() ([]byte, error) { return []byte(q.String()), nil }

// UnmarshalText reads the text form, as ParseSequencer does. It refuses the empty text, so give an
// optional field in JSON the tag omitzero.
func (q *Sequencer) UnmarshalText(text []byte) error {
	parsed, err := ParseSequencer(string(text))
	if err != nil {
		return err
	}
	*q = parsed
	return nil
}

// rules converts q to the engine's type.
func (q Sequencer) rules() engine.Sequencer {
	return engine.Sequencer{
		Key: q.Key, Session: schema.ID(q.Session), LockIndex: q.LockIndex, Fence: q.Fence,
		Mode: engine.Mode(q.Mode),
	}
}

// sequencerOf converts q to the type that users know.
func sequencerOf(q engine.Sequencer) Sequencer {
	return Sequencer{
		Key: q.Key, Session: SessionID(q.Session), LockIndex: q.LockIndex, Fence: q.Fence,
		Mode: LockMode(q.Mode),
	}
}

// Guard protects a resource outside lockd, such as a file or a queue. It orders grants of a lock by
// fence, and then by lock index. It admits an exclusive grant if it has seen no later grant, and a
// shared grant if it has seen no later exclusive grant (R6). One Guard guards one resource. The
// zero value is ready.
//
// A Guard does not ask the database: after a forged sequencer with a larger fence it refuses the
// true holder. A resource that outlives its process stores the highest fence with its data instead.
type Guard struct {
	mu        sync.Mutex // protects what follows
	newest    Sequencer
	exclusive Sequencer // the newest in mode Exclusive
}

// Check returns nil if the guard admits q, ErrNotHeld if it has seen a later grant that excludes q,
// and ErrInvalid if q proves nothing or is of another key than the first q.
func (g *Guard) Check(q Sequencer) error {
	return wrap("guard", q.Key, g.check(q))
}

func (g *Guard) check(q Sequencer) error {
	if q.Session.IsZero() || q.Fence == 0 || q.Mode > Shared {
		return invalid("the sequencer proves nothing")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.newest.Fence != 0 && q.Key != g.newest.Key {
		return invalid("this resource is guarded by the lock %q", g.newest.Key)
	}
	bar := g.newest
	if q.Mode == Shared {
		bar = g.exclusive
	}
	switch {
	case q.Fence < bar.Fence:
		return fmt.Errorf("%w: fence %d has passed, %d was here", ErrNotHeld, q.Fence, bar.Fence)
	case q.Fence == bar.Fence && q.LockIndex < bar.LockIndex:
		return fmt.Errorf("%w: lock index %d of fence %d has passed, %d was here", ErrNotHeld,
			q.LockIndex, q.Fence, bar.LockIndex)
	}
	if q.Mode == Exclusive {
		g.exclusive = q
	}
	if q.Fence > g.newest.Fence ||
		q.Fence == g.newest.Fence && q.LockIndex > g.newest.LockIndex {
		g.newest = q
	}
	return nil
}

// proves returns an error unless the lock that q names is held by this very grant (K41).
func proves(tx *engine.Txn, q Sequencer) error { return tx.Proves(q.rules()) }
