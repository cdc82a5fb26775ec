package schema

import "github.com/google/uuid"

// IsZero reports whether id is no session's.
func (id ID) IsZero() bool { return id == ID{} }

// String returns the UUID, or the empty string for the zero value.
func (id ID) String() string {
	if id.IsZero() {
		return ""
	}
	return id.UUID()
}

// UUID returns the UUID, of the zero value too.
func (id ID) UUID() string { return uuid.UUID(id).String() }

// MarshalText returns what String does. It never fails.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// ParseID reads a UUID in any case (K36), and reports whether the text is one. That of the zero
// value is not.
func ParseID(text string) (ID, bool) {
	parsed, err := uuid.Parse(text)
	if err != nil || len(text) != len(parsed.String()) || parsed == uuid.Nil {
		return ID{}, false
	}
	return ID(parsed), true
}
