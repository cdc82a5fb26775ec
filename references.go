package lockd

import (
	"fmt"

	"github.com/lockd/lockd/internal/schema"
)

// checkReferences returns ErrCorrupt if a row names another one that is not there.
func (db *DB) checkReferences() error {
	s := db.store
	dangling := func(what, name, of, missing string) error {
		return fmt.Errorf("%w: %s %q is of %s %q, which is not there", ErrCorrupt, what, name, of,
			missing)
	}
	for _, row := range s.Locked() {
		if s.Sessions.Newest(string(row.Session[:])) == nil {
			return dangling("locked key", row.Key, "session", SessionID(row.Session).String())
		}
	}
	for name, row := range s.Attachments.Ascend("") {
		if row.Session != (schema.ID{}) && s.Sessions.Newest(string(row.Session[:])) == nil {
			return dangling("attachment", name, "session", SessionID(row.Session).String())
		}
	}
	for id, row := range s.Sessions.Ascend("") {
		if s.Nodes.Newest(folded(row.Node)) == nil {
			return dangling("session", SessionID([]byte(id)).String(), "node", row.Node)
		}
		for _, check := range row.Checks {
			if s.Checks.Newest(catalogKey(row.Node, check)) == nil {
				return dangling("session", SessionID([]byte(id)).String(), "check", check)
			}
		}
	}
	for _, row := range s.Services.Ascend("") {
		if s.Nodes.Newest(folded(row.Node)) == nil {
			return dangling("service", row.ID, "node", row.Node)
		}
	}
	for _, row := range s.Checks.Ascend("") {
		if s.Nodes.Newest(folded(row.Node)) == nil {
			return dangling("check", row.ID, "node", row.Node)
		}
		if row.ServiceID != "" && s.Services.Newest(catalogKey(row.Node, row.ServiceID)) == nil {
			return dangling("check", row.ID, "service", row.ServiceID)
		}
	}
	return nil
}
