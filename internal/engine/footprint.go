package engine

import (
	"github.com/lockd/lockd/internal/schema"
)

// keyFootprint is footprint for keys, of which most events are. The row may be nil.
func keyFootprint(row *schema.Key) uint32 {
	if row == nil {
		return 0
	}
	return uint32(len(row.Key) + len(row.Value))
}

// footprint returns how many bytes of a user's the row of an event keeps from being freed.
func footprint(row any) uint32 {
	n := 0
	switch row := row.(type) {
	case *schema.Session:
		if row != nil {
			n = size(row.Name, row.Node) + size(row.Checks...) + metaSize(row.Meta)
		}
	case *schema.Node:
		if row != nil {
			n = size(row.Name, row.ID, row.Address) + metaSize(row.Meta)
		}
	case *schema.Service:
		if row != nil {
			n = size(row.Node, row.ID, row.Name, row.Address) + size(row.Tags...) +
				metaSize(row.Meta)
		}
	case *schema.Check:
		if row != nil {
			n = size(row.Node, row.ID, row.Name, row.Notes, row.Output, row.ServiceID) +
				metaSize(row.Meta)
		}
	case *schema.Attachment:
		if row != nil {
			n = len(row.Name) + len(row.Value)
		}
	}
	return uint32(n)
}

func size(texts ...string) (bytes int) {
	for _, text := range texts {
		bytes += len(text)
	}
	return bytes
}

func metaSize(meta map[string]string) (bytes int) {
	for key, value := range meta {
		bytes += len(key) + len(value)
	}
	return bytes
}
