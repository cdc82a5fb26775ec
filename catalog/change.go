package catalog

import (
	"fmt"
	"strconv"
)

// Change says what changed in the catalog, in a lockd.Event. The zero value is none.
type Change struct {
	Kind ChangeKind

	// Node, and ID within it, name what changed. ID is the name of an attachment.
	Node, ID string
}

// String returns the change in words, with at most 100 characters of each name.
func (c Change) String() string {
	text := c.Kind.String()
	for _, name := range []string{c.Node, c.ID} {
		if name != "" {
			text += fmt.Sprintf(" %.100q", name)
		}
	}
	return text
}

// ChangeKind says what changed. The zero value is no change.
type ChangeKind uint8

// The kinds.
const (
	NodePut           ChangeKind = iota + 1 // NodePut: a node was made, or changed.
	NodeDeleted                             // NodeDeleted: a node was removed.
	ServicePut                              // ServicePut: a service was made, or changed.
	ServiceDeleted                          // ServiceDeleted: a service was removed.
	CheckPut                                // CheckPut: a check was made, or changed.
	CheckDeleted                            // CheckDeleted: a check was removed.
	AttachmentPut                           // AttachmentPut: an attachment was made, or changed.
	AttachmentDeleted                       // AttachmentDeleted: an attachment was removed.
)

// String returns the kind in words.
func (k ChangeKind) String() string {
	words := [...]string{
		"none", "node put", "node deleted", "service put", "service deleted", "check put",
		"check deleted", "attachment put", "attachment deleted",
	}
	if int(k) < len(words) {
		return words[k]
	}
	return strconv.Itoa(int(k))
}
