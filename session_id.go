package lockd

import (
	"encoding"

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

// ParseSessionID reads a UUID in any case (K36). Any other text is ErrInvalid.
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
