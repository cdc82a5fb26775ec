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

// Sequencer is the proof of a lock: it names one grant, and no other grant ever has the same (G8).
// It is comparable, and has a text form. It is no credential: every caller can read one in an
// Entry, or make one up. The zero value proves nothing, and is refused wherever a sequencer is
// checked.
type Sequencer struct {
	Key       string
	Session   SessionID
	LockIndex uint64 // how often the key was locked since it was created
	Fence     uint64 // the index of the grant
}

var (
	_ encoding.TextMarshaler   = Sequencer{}
	_ encoding.TextUnmarshaler = (*Sequencer)(nil)
)

// String returns the text form, fence:lockindex:session:key, with the key percent-encoded but for
// its slashes. Of the zero value it is empty.
func (q Sequencer) String() string {
	if q == (Sequencer{}) {
		return ""
	}
	key := strings.ReplaceAll(url.PathEscape(q.Key), "%2F", "/")
	return fmt.Sprintf("%d:%d:%s:%s", q.Fence, q.LockIndex, q.Session, key)
}

// ParseSequencer reads the text form that String writes. Any other text is ErrInvalid, the empty
// one too.
func ParseSequencer(text string) (Sequencer, error) {
	q, err := parseSequencer(text)
	return q, wrap("parse sequencer", text, err)
}

func parseSequencer(text string) (Sequencer, error) {
	if text == "" {
		return Sequencer{}, invalid("the text is empty, so nothing is proved; " +
			"want fence:lockindex:session:key")
	}
	parts := strings.SplitN(text, ":", 4)
	if len(parts) != 4 {
		return Sequencer{}, invalid("want fence:lockindex:session:key")
	}
	var q Sequencer
	var err error
	if q.Fence, err = strconv.ParseUint(parts[0], 10, 64); err != nil {
		return Sequencer{}, invalid("fence: %v", err)
	}
	if q.LockIndex, err = strconv.ParseUint(parts[1], 10, 64); err != nil {
		return Sequencer{}, invalid("lock index: %v", err)
	}
	// That of a free lock has no session, and proves nothing.
	if parts[2] != "" {
		var ok bool
		if q.Session, ok = parseSessionID(parts[2]); !ok {
			return Sequencer{}, invalid("session %q is not a UUID", parts[2])
		}
	}
	if q.Key, err = url.PathUnescape(parts[3]); err != nil {
		return Sequencer{}, invalid("key: %v", err)
	}
	// One value has one text, so that texts can be compared too.
	if q.String() != text {
		return Sequencer{}, invalid("not in the form that String writes, which is %q", q.String())
	}
	return q, nil
}

// MarshalText returns the text form.
func (q Sequencer) MarshalText() ([]byte, error) { return []byte(q.String()), nil }

// UnmarshalText is ParseSequencer: an optional field of JSON is tagged omitzero.
func (q *Sequencer) UnmarshalText(text []byte) error {
	parsed, err := ParseSequencer(string(text))
	if err != nil {
		return err
	}
	*q = parsed
	return nil
}

// rules is q as the rules know it.
func (q Sequencer) rules() engine.Sequencer {
	return engine.Sequencer{
		Key: q.Key, Session: schema.ID(q.Session), LockIndex: q.LockIndex, Fence: q.Fence,
	}
}

// sequencerOf returns q as users know it.
func sequencerOf(q engine.Sequencer) Sequencer {
	return Sequencer{
		Key: q.Key, Session: SessionID(q.Session), LockIndex: q.LockIndex, Fence: q.Fence,
	}
}

// Guard protects a resource outside lockd, such as a file or a queue: it admits only the newest
// grant of a lock that it has seen, by the fence and then the lock index. One Guard guards one
// resource. The zero value is ready.
//
// It does not ask the database: a forged sequencer with a larger fence shuts the true holder out. A
// resource that outlives its process stores the highest fence with its data instead.
type Guard struct {
	mu      sync.Mutex // protects what follows
	highest Sequencer
}

// Check returns nil for the newest grant it has seen, ErrNotHeld if it has seen a later one, and
// ErrInvalid if q proves nothing or is of another key than the first one.
func (g *Guard) Check(q Sequencer) error {
	return wrap("guard", q.Key, g.check(q))
}

func (g *Guard) check(q Sequencer) error {
	if q.Session.IsZero() || q.Fence == 0 {
		return invalid("the sequencer proves nothing")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.highest.Fence != 0 && q.Key != g.highest.Key {
		return invalid("this resource is guarded by the lock %q", g.highest.Key)
	}
	if q.Fence < g.highest.Fence {
		return fmt.Errorf("%w: fence %d has passed, %d was here", ErrNotHeld, q.Fence,
			g.highest.Fence)
	}
	if q.Fence == g.highest.Fence && q.LockIndex < g.highest.LockIndex {
		return fmt.Errorf("%w: lock index %d of fence %d has passed, %d was here", ErrNotHeld,
			q.LockIndex, q.Fence, g.highest.LockIndex)
	}
	g.highest = q
	return nil
}

// proves says whether the lock that q names is held by this very grant (K41).
func proves(tx *engine.Txn, q Sequencer) error { return q.rules().Proves(tx.Get(q.Key)) }
