package engine

import (
	"strings"
	"time"

	"github.com/lockd/lockd/internal/schema"
)

// Limits of the arguments that the rules take. Package lockd documents them, under the same names.
const (
	// MaxKeySize is the length of the longest key, name or ID, in bytes.
	MaxKeySize = 16 << 10
	// MaxValueSize is the length of the longest value, in bytes.
	MaxValueSize = 64 << 20
	// MinTTL is the shortest TTL of a session or a check.
	MinTTL = time.Millisecond
)

// CheckName refuses a name that is empty or too long.
func CheckName(field, name string) error {
	if name == "" {
		return invalid("%s is empty", field)
	}
	if len(name) > MaxKeySize {
		return invalid("%s has %d bytes, more than %d", field, len(name), MaxKeySize)
	}
	return nil
}

// CheckValue refuses a value that is too long.
func CheckValue(value []byte) error {
	if len(value) > MaxValueSize {
		return invalid("value has %d bytes, more than %d", len(value), MaxValueSize)
	}
	return nil
}

// CheckTTL refuses a duration that is below 0, or above 0 and below MinTTL.
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

// CheckNodeName refuses an invalid name of a node: one that is empty or too long, has a zero byte,
// or is not UTF-8. A zero byte separates the names in the key of a row. In lower case each invalid
// byte would become the same three bytes: the key might be too long, and two names might have one
// key. No client of Consul can send such a name in JSON.
func CheckNodeName(field, name string) error {
	if strings.Contains(name, "\x00") {
		return invalid("%s %.100q has a zero byte", field, name)
	}
	if !isUTF8(name) {
		return invalid("%s %.100q is not UTF-8", field, name)
	}
	return CheckName(field, name)
}

// checkCatalogID also refuses an ID that makes the key of a row too long for a file. The commit
// would fail, and with it every write in the same batch.
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

// CatalogKey returns the key under which a service or a check of a node is kept.
func CatalogKey(node, id string) string { return Folded(node) + "\x00" + Folded(id) }

// Folded returns a name of the catalog in the form in which names are compared (S39, N17). If
// CheckNodeName accepts the name, that form is at most one and a half times as long. A name that is
// not UTF-8 is the name of nothing, and stays as it is: its lower case would be another name.
func Folded(name string) string {
	if !isUTF8(name) {
		return name
	}
	return strings.ToLower(name)
}

func isUTF8(name string) bool { return strings.ToValidUTF8(name, "") == name }
