package engine

import (
	"fmt"

	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/store"
)

// CheckReferences returns ErrCorrupt if a row names another one that is not there.
func (e *Engine) CheckReferences() error {
	s := e.rows
	dangling := func(what, name, of, missing string) error {
		return fmt.Errorf("%w: %s %q is of %s %q, which is not there", store.ErrCorrupt, what,
			name, of, missing)
	}
	for _, row := range s.Locked() {
		if s.Sessions.Newest(string(row.Session[:])) == nil {
			return dangling("locked key", row.Key, "session", row.Session.String())
		}
	}
	for _, row := range s.Shares.Ascend("") {
		session := row.Session()
		if s.Sessions.Newest(string(session[:])) == nil {
			return dangling("share of", row.Key(), "session", session.String())
		}
		key := s.Keys.Newest(row.Key())
		if key == nil {
			return dangling("share of session", session.String(), "key", row.Key())
		}
		if !key.Session.IsZero() {
			return fmt.Errorf("%w: key %q is locked by session %s, and shared", store.ErrCorrupt,
				row.Key(), key.Session)
		}
	}
	for name, row := range s.Attachments.Ascend("") {
		if !row.Session.IsZero() && s.Sessions.Newest(string(row.Session[:])) == nil {
			return dangling("attachment", name, "session", row.Session.String())
		}
	}
	for id, row := range s.Sessions.Ascend("") {
		if s.Nodes.Newest(Folded(row.Node)) == nil {
			return dangling("session", schema.ID([]byte(id)).String(), "node", row.Node)
		}
		for _, check := range row.Checks {
			if s.Checks.Newest(CatalogKey(row.Node, check)) == nil {
				return dangling("session", schema.ID([]byte(id)).String(), "check", check)
			}
		}
	}
	for _, row := range s.Services.Ascend("") {
		if s.Nodes.Newest(Folded(row.Node)) == nil {
			return dangling("service", row.ID, "node", row.Node)
		}
	}
	for _, row := range s.Checks.Ascend("") {
		if s.Nodes.Newest(Folded(row.Node)) == nil {
			return dangling("check", row.ID, "node", row.Node)
		}
		if row.ServiceID != "" && s.Services.Newest(CatalogKey(row.Node, row.ServiceID)) == nil {
			return dangling("check", row.ID, "service", row.ServiceID)
		}
	}
	return nil
}
