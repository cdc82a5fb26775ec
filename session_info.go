package lockd

import (
	"encoding"
	"time"

	"github.com/lockd/lockd/internal/schema"
)

// SessionID names a session. An ID is never used again (S36). It is comparable, and its text form
// is a UUID in lower case. The zero value names no session.
type SessionID [16]byte

var (
	_ encoding.TextMarshaler   = SessionID{}
	_ encoding.TextUnmarshaler = (*SessionID)(nil)
)

// IsZero reports whether id names no session.
func (id SessionID) IsZero() bool { return id == SessionID{} }

// String returns the UUID, or the empty string for the zero value.
func (id SessionID) String() string { return schema.ID(id).String() }

// ParseSessionID reads a UUID in any case (K36). Any other text is ErrInvalid, and so is the
// UUID of zeros.
func ParseSessionID(text string) (SessionID, error) {
	id, ok := parseSessionID(text)
	if !ok {
		return SessionID{}, wrap("parse session", text, invalid("it is not a UUID"))
	}
	return id, nil
}

func parseSessionID(text string) (SessionID, bool) {
	id, ok := schema.ParseID(text)
	return SessionID(id), ok
}

// MarshalText returns the text form.
func (id SessionID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads the text form; the empty text is the zero value.
func (id *SessionID) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*id = SessionID{}
		return nil
	}
	parsed, err := ParseSessionID(string(text))
	if err != nil {
		return err
	}
	*id = parsed
	return nil
}

// Behavior says what the end of a session does to the keys whose locks it holds.
type Behavior uint8

// Behaviors.
const (
	// ReleaseKeys releases the locks; the keys stay (K33).
	ReleaseKeys Behavior = iota
	// DeleteKeys deletes the keys (K34).
	DeleteKeys
)

// String returns the behavior as Consul writes it.
func (b Behavior) String() string { return name(b, "release", "delete") }

// Lifetime says whether a session can outlive the process that made it.
type Lifetime uint8

// The lifetimes.
const (
	// BoundToProcess ends the session with DB.Close, and after a crash with the next Open.
	BoundToProcess Lifetime = iota
	// Independent keeps the session in the file, but see Keeper. Its TTL runs while the file is
	// open, and begins anew with each Open (S28).
	Independent
)

// String returns the lifetime in words.
func (l Lifetime) String() string { return name(l, "bound to process", "independent") }

// SessionInfo describes a session. It never changes (S3).
type SessionInfo struct {
	ID          SessionID
	Name        string
	Node        string
	TTL         time.Duration
	Grace       time.Duration
	LockDelay   time.Duration // 0: none
	Behavior    Behavior
	Lifetime    Lifetime
	Checks      []string
	Meta        map[string]string
	CreateIndex uint64
}

func sessionInfo(row *schema.Session) SessionInfo {
	return SessionInfo{
		ID: SessionID(row.ID), Name: row.Name, Node: row.Node, TTL: row.TTL, Grace: row.Grace,
		LockDelay: row.LockDelay, Behavior: Behavior(row.Behavior),
		Lifetime: Lifetime(row.Lifetime), Checks: row.Checks, Meta: row.Meta,
		CreateIndex: row.CreateIndex,
	}
}

// infoOf describes the session of the row, and reports whether there is a row.
func infoOf(row *schema.Session) (SessionInfo, bool) {
	if row == nil {
		return SessionInfo{}, false
	}
	return sessionInfo(row), true
}
