package engine

import (
	"strings"
	"time"

	"github.com/lockd/lockd/internal/schema"
)

// Limits of what the rules take. Package lockd documents them: it has them under the same names.
const (
	// MaxKeySize is the length of the longest key, name or ID, in bytes.
	MaxKeySize = 16 << 10
	// MaxValueSize is the length of the longest value, in bytes.
	MaxValueSize = 64 << 20
	// MinTTL is the shortest TTL of a session or a check.
	MinTTL = time.Millisecond
)

// CheckName refuses what cannot be the name of anything.
func CheckName(field, name string) error {
	if name == "" {
		return invalid("%s is empty", field)
	}
	if len(name) > MaxKeySize {
		return invalid("%s has %d bytes, more than %d", field, len(name), MaxKeySize)
	}
	return nil
}

// CheckValue refuses what cannot be a value.
func CheckValue(value []byte) error {
	if len(value) > MaxValueSize {
		return invalid("value has %d bytes, more than %d", len(value), MaxValueSize)
	}
	return nil
}

// CheckTTL refuses what is no TTL of a session or a check, and no time like that for a lock.
func CheckTTL(field string, ttl time.Duration) error {
	switch {
	case ttl < 0:
		return invalid("%s is %v, below 0", field, ttl)
	case ttl > 0 && ttl < MinTTL:
		return TooShort(field, ttl, MinTTL)
	}
	return nil
}

// TooShort refuses a duration that most likely lacks its unit.
func TooShort(field string, d, least time.Duration) error {
	return invalid("%s is %v, below %v; was a unit forgotten, as in %d * time.Second?", field, d,
		least, d.Nanoseconds())
}

// CheckNodeName refuses what cannot be the name of a node: also one with the byte that separates
// the names in the key of a row. One that is not UTF-8, which no client of Consul's can send in
// JSON, would be another name in lower case, with three bytes for each that is wrong: more than a
// key may have, and the same for names that differ.
func CheckNodeName(field, name string) error {
	if strings.Contains(name, "\x00") {
		return invalid("%s %q has a zero byte", field, name)
	}
	if strings.ToValidUTF8(name, "") != name {
		return invalid("%s %.100q is not UTF-8", field, name)
	}
	return CheckName(field, name)
}

// checkCatalogID also refuses an ID that makes the key of a row too long for a file. The commit
// would fail, and with it every write that is in the same batch.
func checkCatalogID(field, node, id string) error {
	if err := CheckNodeName(field, id); err != nil {
		return err
	}
	if n := len(CatalogKey(node, id)); n > schema.KeyLimit {
		return invalid("%s and the node's name have %d bytes in lower case, more than %d", field,
			n-1, schema.KeyLimit-1)
	}
	return nil
}
