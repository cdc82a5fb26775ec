// Package schema has the rows of a database: what its tables hold and its file keeps.
//
// They are data without rules. What a field means to locks and sessions is the business of the
// packages that write it.
package schema

import (
	"encoding/binary"
	"time"

	"github.com/google/uuid"
)

// FirstIndex is the index of a database without rows. The first write gets the next one.
const FirstIndex = 1

// GraveLimit is how many tombstones are kept at least. Of the older ones only the highest index
// stays, under the mark [FloorMark].
const GraveLimit = 10_000

// FloorMark names the mark that holds the highest index of the tombstones that were dropped.
const FloorMark = "floor"

// KeyLimit is the length of the longest key of a row, in bytes. A file cannot hold a longer one,
// nor an empty one.
const KeyLimit = 32_768

// ID is a session's ID. The zero value means none.
type ID [16]byte

// IsZero reports whether id is the zero value, which is the ID of no session.
func (id ID) IsZero() bool { return id == ID{} }

// String returns the UUID, or the empty string for the zero value.
func (id ID) String() string {
	if id.IsZero() {
		return ""
	}
	return id.UUID()
}

// UUIDSize is the length of a UUID as a text.
const UUIDSize = 36

// UUID returns the UUID, also for the zero value.
func (id ID) UUID() string { return uuid.UUID(id).String() }

// AppendUUID appends the UUID to the text, without memory of its own.
func (id ID) AppendUUID(text []byte) []byte {
	raw, _ := uuid.UUID(id).MarshalText() // it never fails
	return append(text, raw...)
}

// ParseID reads a UUID in any case (K36), and reports whether the text is an ID. The UUID of the
// zero value is not.
func ParseID(text string) (ID, bool) {
	parsed, err := uuid.Parse(text)
	if err != nil || len(text) != UUIDSize || parsed == uuid.Nil {
		return ID{}, false
	}
	return ID(parsed), true
}

// Key is a row of the table of keys, under the key itself.
//
// A row of any type is immutable once a table has it, with all that hangs on it. A file does not
// keep an empty slice or map: it is read back as nil.
type Key struct {
	Key         string // the row's key
	Value       []byte
	Flags       uint64 // the user's
	Session     ID     // the holder of the lock, zero if it is free
	CreateIndex uint64
	ModifyIndex uint64
	LockIndex   uint64 // how often the lock was taken, when free, since CreateIndex
	Fence       uint64 // the index of the last grant that took the lock when it was free

	// Granted is when that was, with the clock's monotonic reading. A file does not have it: a row
	// that is read back has the zero time.
	Granted time.Time
}

// Session is a row of the table of sessions, under its ID's 16 bytes. What Behavior and Lifetime
// mean is not this package's business.
type Session struct {
	ID          ID // the row's key
	Name        string
	Node        string
	TTL         time.Duration
	Grace       time.Duration
	LockDelay   time.Duration
	Behavior    uint8
	Lifetime    uint8
	Checks      []string
	Meta        map[string]string
	CreateIndex uint64
}

// Node is a row of the table of nodes. The caller chooses its key.
type Node struct {
	Name        string
	ID          string
	Address     string
	Meta        map[string]string
	CreateIndex uint64
	ModifyIndex uint64
}

// Service is a row of the table of services. The caller chooses its key.
type Service struct {
	Node        string
	ID          string
	Name        string
	Address     string
	Port        int
	Tags        []string
	Meta        map[string]string
	CreateIndex uint64
	ModifyIndex uint64
}

// Check is a row of the table of checks. The caller chooses its key. What Status means is not
// this package's business.
type Check struct {
	Node        string
	ID          string
	Name        string
	Notes       string
	Output      string
	ServiceID   string
	Status      uint8
	CreateIndex uint64
	ModifyIndex uint64
	TTL         time.Duration
	Meta        map[string]string
}

// Attachment is a row of the table of attachments, under its name: a value that ends with a
// session, if it has one.
type Attachment struct {
	Name        string // the row's key
	Session     ID
	Value       []byte
	CreateIndex uint64
	ModifyIndex uint64
}

// Delay is a row of the table of lock-delays, under the key that is delayed.
type Delay struct {
	Key string // the row's key

	// Until is the end by the wall clock. In a file it loses its monotonic reading, and it comes
	// back in UTC.
	Until  time.Time
	Length time.Duration // the whole delay

	Index uint64 // the index at which it began; 0: it is not known

	// Mode is the mode in which the lock was lost. What it means is not this package's business.
	Mode uint8
}

// Share is a row of the table of shares: one grant of a lock that is shared. The row of the lock's
// key does not name the holder.
type Share struct {
	Row       string    // the row's key, which says whose grant of which lock it is: see [ShareKey]
	LockIndex uint64    // the LockIndex of the key
	Granted   time.Time // as in Key

	// Removes is set if the first holder created the key and is to remove it, and no other holder
	// wrote to the key in the same transaction. Later shares have the same value, until the lock is
	// no longer shared. A file does not have it.
	Removes bool
}

// A share's row has a key of four parts: the length of the lock's key, that key, fence and session.
const (
	shareKeyAt   = 2
	shareFence   = 8
	shareSession = len(ID{})
)

// ShareKey returns the key of the row of one grant of a shared lock. The rows of one lock are
// neighbours, in the order of their fences.
func ShareKey(key string, fence uint64, session ID) string {
	var short [128]byte // which is not allocated
	row := append(binary.BigEndian.AppendUint16(short[:0], uint16(len(key))), key...)
	return string(append(binary.BigEndian.AppendUint64(row, fence), session[:]...))
}

// SharePrefix returns what the keys of all rows of one shared lock, and no others, begin with.
func SharePrefix(key string) string {
	return string(binary.BigEndian.AppendUint16(nil, uint16(len(key)))) + key
}

// IsShareKey reports whether the string is the key of a row of the table of shares.
func IsShareKey(row string) bool {
	n := len(row) - shareKeyAt - shareFence - shareSession
	return n >= 0 && int(binary.BigEndian.Uint16([]byte(row[:shareKeyAt]))) == n
}

// Key returns the key of the lock.
func (s *Share) Key() string { return s.Row[shareKeyAt : len(s.Row)-shareFence-shareSession] }

// Fence returns the index of the grant.
func (s *Share) Fence() uint64 {
	at := len(s.Row) - shareFence - shareSession
	return binary.BigEndian.Uint64([]byte(s.Row[at : at+shareFence]))
}

// Session returns the ID of the holder.
func (s *Share) Session() ID { return ID([]byte(s.Row[len(s.Row)-shareSession:])) }

// Grave is a row of the table of tombstones, under its kind and name: the index at which something
// was deleted.
type Grave struct {
	Kind  uint8  // the first byte of the row's key; not 255
	Name  string // the rest of it
	Index uint64
}

// GraveKey is the key of a tombstone's row. The kind is not 255.
func GraveKey(kind byte, name string) string { return string([]byte{kind}) + name }

// Mark is a row of the table of marks, under its name: an index to be remembered, such as the
// last change of a table.
type Mark struct {
	Name  string // the row's key
	Index uint64
}
